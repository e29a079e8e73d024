package avsc

import "sync"

// Limits of each cache, since schema ids are read from messages.
const (
	MaxCached      = 1024
	maxCachedBytes = 256 << 20 // as the callers of Put estimate them
)

// A Cache is a map of limited size: when it is full, a new entry replaces arbitrary ones. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	mu    sync.RWMutex
	m     map[K]cached[V]
	bytes int
}

type cached[V any] struct {
	v     V
	bytes int
}

// NewCache returns an empty cache.
func NewCache[K comparable, V any]() *Cache[K, V] {
	return &Cache[K, V]{m: make(map[K]cached[V])}
}

// Get returns the value stored under k, and whether there is one.
func (c *Cache[K, V]) Get(k K) (V, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e, ok := c.m[k]
	return e.v, ok
}

// Put stores v, which holds so many bytes.
func (c *Cache[K, V]) Put(k K, v V, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(k)
	for old := range c.m {
		if len(c.m) < MaxCached && c.bytes+bytes <= maxCachedBytes {
			break
		}
		c.drop(old)
	}
	c.m[k] = cached[V]{v, bytes}
	c.bytes += bytes
}

func (c *Cache[K, V]) drop(k K) {
	c.bytes -= c.m[k].bytes
	delete(c.m, k)
}

// ParsedBytes estimates the memory of a parsed schema of a size: at most 200 bytes for each of its text, as unions of short fields have, and
// 4 KiB for each of MaxSchemaTypes.
func ParsedBytes(size int) int { return size + min(200*size, MaxSchemaTypes*4<<10) }
