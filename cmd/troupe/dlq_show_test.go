package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/repair"
)

// Each level of JSON is indented by two spaces more: a payload of 20 kB with 10,000 levels would become 200 MB, and one of a megabyte 10 GB.
func TestAPayloadOfManyLevelsIsPrintedAsItIs(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	for _, deep := range []string{
		strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		strings.Repeat("[", 99) + strings.Repeat("1,", 20_000) + "1" + strings.Repeat("]", 99), // with 2,000,000 elements 400 MB
	} {
		out.Reset()
		printPayload(&out, "payload", repair.Payload{JSON: []byte(deep), Format: "JSON", Bytes: len(deep)})
		require.Contains(t, out.String(), deep)
		require.Less(t, out.Len(), 2*len(deep))
	}

	out.Reset()
	printPayload(&out, "payload", repair.Payload{JSON: []byte(`{"a": [1]}`), Format: "JSON", Bytes: 10})
	require.Contains(t, out.String(), "  {\n    \"a\": [\n      1\n    ]\n  }\n")
}
