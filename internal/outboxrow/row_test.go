package outboxrow_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/outboxrow"
)

// A row may have 8 MiB. As headers without name and value these were 4 million headers, and hundreds of megabytes in a relay.
func TestManyHeadersOfARowAreNotHeldInMemory(t *testing.T) {
	var fields []string
	for i := range 600_000 {
		fields = append(fields, fmt.Sprintf(`"%x": 0`, i))
	}
	for name, row := range map[string]outboxrow.Row{
		"raw_headers": {RawHeaders: make([]byte, 8<<20)},
		"headers":     {Headers: []byte("{" + strings.Join(fields, ", ") + "}")},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := row.Message(outboxrow.Defaults{})
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, envelope.ErrHeaders, name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20), name)
	}
}

func TestTheFirstHeadersOfTooManyAreThere(t *testing.T) {
	t.Parallel()
	row := outboxrow.Row{RawHeaders: append(envelope.MarshalHeaders([]envelope.Header{{Key: "first", Value: []byte("1")}}), make([]byte, 1<<20)...)}
	m, err := row.Message(outboxrow.Defaults{})
	require.ErrorIs(t, err, envelope.ErrHeaders)
	require.ErrorContains(t, err, "more than 65536 of them")
	require.Equal(t, "first", m.Extra[0].Key)
}
