package mapping_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/mapping"
)

// BenchmarkMessage maps the order of Debezium's documentation, in binary as from the log.
func BenchmarkMessage(b *testing.B) {
	for name, cfg := range map[string]mapping.Config{
		"cloudevents": {},
		"eventrouter": {Headers: mapping.EventRouter},
		"expanded":    {Headers: mapping.EventRouter, ExpandJSON: true},
		"envelope":    {Headers: mapping.EventRouter, Additional: "type:envelope"},
	} {
		b.Run(name, func(b *testing.B) {
			m, err := mapping.New(cfg)
			require.NoError(b, err)
			columns, row := values(b, order(), true)
			table, err := m.Bind(columns)
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := table.Message(row); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
