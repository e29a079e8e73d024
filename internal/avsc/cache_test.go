package avsc

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCachesAreLimitedByBytes fills a cache with schemas of the largest size: 1,024 of them took 1 GB as texts, and more when parsed.
func TestCachesAreLimitedByBytes(t *testing.T) {
	largest := strings.Repeat("x", MaxSchema)
	texts, parsed := NewCache[uint32, string](), NewCache[uint32, string]()
	for id := range uint32(1000) {
		texts.Put(id, largest, len(largest))
		parsed.Put(id, largest, ParsedBytes(len(largest)))
		_, found := parsed.Get(id)
		require.True(t, found, "the newest entry is kept")
	}
	require.Len(t, texts.m, maxCachedBytes/MaxSchema)
	require.Len(t, parsed.m, maxCachedBytes/ParsedBytes(len(largest)))
	for range 2 * MaxCached {
		texts.Put(1, "small", 5)
	}
	require.Equal(t, 5, texts.m[1].bytes)
	var sum int
	for _, e := range texts.m {
		sum += e.bytes
	}
	require.Equal(t, sum, texts.bytes)
	for id := range uint32(2 * MaxCached) {
		parsed.Put(id, "small", 5)
	}
	require.Len(t, parsed.m, MaxCached)
}
