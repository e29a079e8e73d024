package schemas

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCachesAreLimitedByBytes fills a cache with schemas of the largest size: 1,024 of them took 1 GB as texts, and more when parsed.
func TestCachesAreLimitedByBytes(t *testing.T) {
	largest := strings.Repeat("x", maxSchema)
	texts, parsed := newCache[uint32, string](), newCache[uint32, string]()
	for id := range uint32(1000) {
		texts.put(id, largest, len(largest))
		parsed.put(id, largest, parsedBytes(largest))
		_, found := parsed.get(id)
		require.True(t, found, "the newest entry is kept")
	}
	require.Len(t, texts.m, maxCachedBytes/maxSchema)
	require.Len(t, parsed.m, maxCachedBytes/parsedBytes(largest))
	for range 2 * maxCached {
		texts.put(1, "small", 5)
	}
	require.Equal(t, 5, texts.m[1].bytes)
	var sum int
	for _, e := range texts.m {
		sum += e.bytes
	}
	require.Equal(t, sum, texts.bytes)
	for id := range uint32(2 * maxCached) {
		parsed.put(id, "small", 5)
	}
	require.Len(t, parsed.m, maxCached)
}

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
		avsc := `{"type":"record","name":"r","fields":[` + strings.Join(fields, ",") + "]}"
		var kept [8]generic
		before := heap()
		for i := range kept {
			kept[i] = makeGeneric(avsc)
			require.NoError(t, kept[i].err)
		}
		require.Less(t, (heap()-before)/len(kept), parsedBytes(avsc), name)
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
