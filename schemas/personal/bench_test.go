package personal_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/schemas/personal"
	"github.com/troupe-go/troupe/testkit"
)

// BenchmarkMessage encodes and decodes a message of two personal fields: without encryption, with a key in the process, and with a key that
// is read from the table each time.
func BenchmarkMessage(b *testing.B) {
	server := srfake.New()
	b.Cleanup(server.Close)
	registry, err := schemas.NewRegistry(server.URL())
	require.NoError(b, err)
	plain, err := schemas.New(b.Context(), schemas.Config{Registry: registry, Types: []schemas.Type{schemas.Bind[mailSent](mailAvro)}})
	require.NoError(b, err)
	kek, err := personal.ParseKeys(kekText)
	require.NoError(b, err)
	table, err := personal.NewTable(b.Context(), testkit.Database(b), kek)
	require.NoError(b, err)
	b.Cleanup(table.Close)
	codec := func(keep time.Duration) envelope.Codec {
		c, err := personal.New(personal.Config{Codec: plain, Keys: table, CacheFor: keep})
		require.NoError(b, err)
		return c
	}
	for name, c := range map[string]envelope.Codec{"plain": plain, "key in the process": codec(time.Hour), "key from the table": codec(1)} {
		_, err := c.Encode("t", mailSent{"c-1", "ann@example.com", "Ann Example"})
		require.NoError(b, err)
		b.Run(name+"/encode", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := c.Encode("t", mailSent{"c-1", "ann@example.com", "Ann Example"})
				require.NoError(b, err)
			}
		})
		b.Run(name+"/decode", func(b *testing.B) {
			e, err := c.Encode("t", mailSent{"c-1", "ann@example.com", "Ann Example"})
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				var m mailSent
				require.NoError(b, c.Decode(envelope.Message{ContentType: e.ContentType, Payload: e.Payload}, &m))
			}
		})
	}
}
