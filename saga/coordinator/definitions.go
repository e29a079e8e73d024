package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/troupe-go/troupe/saga"
)

// definitions holds the known definitions: for each type of saga the one that new instances use, and all of them by hash.
type definitions struct {
	current map[string]*saga.Definition
	names   []string // of current, sorted
	mu      sync.RWMutex
	byHash  map[string]*saga.Definition // guarded by mu
	all     []*saga.Definition          // of byHash, by saga and hash; guarded by mu
	// find loads a definition that is not known, of a saga that another process started.
	find func(ctx context.Context, hash string) (*saga.Definition, error)
}

func newDefinitions(defs []*saga.Definition) (*definitions, error) {
	ds := &definitions{current: make(map[string]*saga.Definition), byHash: make(map[string]*saga.Definition)}
	for _, d := range defs {
		name := d.Spec().Saga
		if ds.current[name] != nil {
			return nil, fmt.Errorf("two definitions of saga %s: want the one that new instances get", name)
		}
		ds.current[name] = d
		ds.byHash[d.Hash()] = d
		ds.names = append(ds.names, name)
	}
	slices.Sort(ds.names)
	ds.sort()
	return ds, nil
}

// named returns the definition that new instances of a saga use.
func (ds *definitions) named(name string) (*saga.Definition, error) {
	if d := ds.current[name]; d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("there is no saga %q: there are %s", name, strings.Join(ds.names, ", "))
}

// known returns all definitions that this process has used, in an order that does not depend on when.
func (ds *definitions) known() []*saga.Definition {
	ds.mu.RLock()
	defer ds.mu.RUnlock()
	return ds.all
}

func (ds *definitions) sort() {
	ds.all = slices.SortedFunc(maps.Values(ds.byHash), func(a, b *saga.Definition) int {
		return cmp.Or(cmp.Compare(a.Spec().Saga, b.Spec().Saga), cmp.Compare(a.Hash(), b.Hash()))
	})
}

func (ds *definitions) of(ctx context.Context, hash string) (*saga.Definition, error) {
	ds.mu.RLock()
	d := ds.byHash[hash]
	ds.mu.RUnlock()
	if d != nil {
		return d, nil
	}
	if ds.find == nil {
		return nil, fmt.Errorf("definition %s is not known", hash)
	}
	d, err := ds.find(ctx, hash)
	if err == nil {
		ds.mu.Lock()
		ds.byHash[hash] = d
		ds.sort()
		ds.mu.Unlock()
	}
	return d, err
}

// concern reports whether an event that answers no command may start or move a saga.
func (ds *definitions) concern(hop, event string) bool {
	for _, d := range ds.known() {
		if d.Concerns(hop, event) {
			return true
		}
	}
	return false
}
