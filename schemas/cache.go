package schemas

import "sync"

// maxCached bounds each cache: schema ids come off the wire.
const maxCached = 1024

// A cache is a map that stays small: when it is full, a new entry pushes an arbitrary one out. It may be used
// concurrently.
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
