package schemas

import "sync"

// maxCached limits the entries of each cache, since schema ids are read from messages.
const maxCached = 1024

// A cache is a map of limited size: when it is full, a new entry replaces an arbitrary one. It is safe for concurrent use.
type cache[K comparable, V any] struct {
	mu sync.RWMutex
	m  map[K]V
}

func newCache[K comparable, V any]() *cache[K, V] {
	return &cache[K, V]{m: make(map[K]V)}
}

func (c *cache[K, V]) get(k K) (V, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	v, ok := c.m[k]
	return v, ok
}

func (c *cache[K, V]) put(k K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.m[k]; !ok && len(c.m) >= maxCached {
		for old := range c.m {
			delete(c.m, old)
			break
		}
	}
	c.m[k] = v
}
