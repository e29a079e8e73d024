package schemas

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/avsc"
)

// TestTheEstimateOfAParsedSchemaIsNotTooLow takes schemas that need much memory for their size.
func TestTheEstimateOfAParsedSchemaIsNotTooLow(t *testing.T) {
	for name, one := range map[string]string{
		"ints": `{"name":"f%d","type":"int"}`, "unions": `{"name":"f%d","type":["null","int","string"]}`,
		"arrays": `{"name":"f%d","type":{"type":"array","items":"int"}}`,
	} {
		fields := make([]string, 1500)
		for i := range fields {
			fields[i] = fmt.Sprintf(one, i)
		}
		text := `{"type":"record","name":"r","fields":[` + strings.Join(fields, ",") + "]}"
		var kept [8]*avroSchema
		before := heap()
		for i := range kept {
			var err error
			kept[i], err = newAvroSchema(text)
			require.NoError(t, err)
		}
		require.Less(t, (heap()-before)/len(kept), avsc.ParsedBytes(len(text)), name)
		require.NotNil(t, kept[0].tagged)
	}
}

// heap returns the bytes that are in use. The tests of this file do not run in parallel with others.
func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
