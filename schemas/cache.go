package schemas

import "sync"

// Limits of each cache, since schema ids are read from messages.
const (
	maxCached      = 1024
	maxCachedBytes = 256 << 20 // as the callers of put estimate them
)

// A cache is a map of limited size: when it is full, a new entry replaces arbitrary ones. It is safe for concurrent use.
type cache[K comparable, V any] struct {
	mu    sync.RWMutex
	m     map[K]cached[V]
	bytes int
}

type cached[V any] struct {
	v     V
	bytes int
}

func newCache[K comparable, V any]() *cache[K, V] {
	return &cache[K, V]{m: make(map[K]cached[V])}
}

func (c *cache[K, V]) get(k K) (V, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e, ok := c.m[k]
	return e.v, ok
}

// put stores v, which holds so many bytes.
func (c *cache[K, V]) put(k K, v V, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(k)
	for old := range c.m {
		if len(c.m) < maxCached && c.bytes+bytes <= maxCachedBytes {
			break
		}
		c.drop(old)
	}
	c.m[k] = cached[V]{v, bytes}
	c.bytes += bytes
}

func (c *cache[K, V]) drop(k K) {
	c.bytes -= c.m[k].bytes
	delete(c.m, k)
}

// parsedBytes estimates the memory of a parsed schema: at most 200 bytes for each of its text, as unions of short fields have, and
// 4 KiB for each of maxSchemaTypes.
func parsedBytes(avsc string) int { return len(avsc) + min(200*len(avsc), maxSchemaTypes*4<<10) }
