package decisions

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/troupe-go/troupe/saga"
)

// Definitions holds the known definitions: for each type of saga the one that new instances use, and all of them by hash.
type Definitions struct {
	current map[string]*saga.Definition
	names   []string // of current, sorted
	mu      sync.RWMutex
	byHash  map[string]*saga.Definition // guarded by mu
	all     []*saga.Definition          // of byHash, by saga and hash; guarded by mu
	// idle holds the definitions with which no saga ran when the process began, and with which it has loaded none since. Most are
	// retired versions. Guarded by mu.
	idle map[string]bool
	// unreadable holds the stored definitions that cannot be parsed, by hash. Guarded by mu.
	unreadable map[string]unreadableDefinition
	// Find loads a definition that is not known, of a saga that another process started.
	Find func(ctx context.Context, hash string) (*saga.Definition, error)
}

// NewDefinitions returns definitions that new instances use, one for each type.
func NewDefinitions(defs []*saga.Definition) (*Definitions, error) {
	ds := &Definitions{
		current: make(map[string]*saga.Definition), byHash: make(map[string]*saga.Definition),
		idle: make(map[string]bool), unreadable: make(map[string]unreadableDefinition),
	}
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

// Named returns the definition that new instances of a saga use.
func (ds *Definitions) Named(name string) (*saga.Definition, error) {
	if d := ds.current[name]; d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("there is no saga %q: there are %s", name, strings.Join(ds.names, ", "))
}

// known returns all definitions that sagas of this coordinator have or may have, in the order of their names and hashes.
func (ds *Definitions) known() []*saga.Definition {
	ds.mu.RLock()
	defer ds.mu.RUnlock()
	return ds.all
}

// knows reports whether a known definition is of the type of a saga.
func (ds *Definitions) knows(id string) bool {
	name, _, _ := strings.Cut(id, "/")
	return slices.ContainsFunc(ds.known(), func(d *saga.Definition) bool { return d.Spec().Saga == name })
}

func (ds *Definitions) sort() {
	ds.all = slices.SortedFunc(maps.Values(ds.byHash), func(a, b *saga.Definition) int {
		return cmp.Or(cmp.Compare(a.Spec().Saga, b.Spec().Saga), cmp.Compare(a.Hash(), b.Hash()))
	})
}

// Of returns the definition of a hash.
func (ds *Definitions) Of(ctx context.Context, hash string) (*saga.Definition, error) {
	ds.mu.RLock()
	d, idle := ds.byHash[hash], ds.idle[hash]
	ds.mu.RUnlock()
	if d != nil {
		if idle {
			ds.Add(hash, d)
		}
		return d, nil
	}
	if ds.Find == nil {
		return nil, fmt.Errorf("definition %s is not known", hash)
	}
	d, err := ds.Find(ctx, hash)
	if err == nil {
		ds.Add(hash, d)
	}
	return d, err
}

// Add makes a definition known that sagas have or may have.
func (ds *Definitions) Add(hash string, d *saga.Definition) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	ds.byHash[hash] = d
	delete(ds.idle, hash)
	ds.sort()
}

// AddIdle makes a definition known that no saga has now. An event that only such definitions await is not stashed.
func (ds *Definitions) AddIdle(hash string, d *saga.Definition) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	ds.byHash[hash], ds.idle[hash] = d, true
	ds.sort()
}

func (ds *Definitions) isIdle(d *saga.Definition) bool {
	ds.mu.RLock()
	defer ds.mu.RUnlock()
	return ds.idle[d.Hash()]
}

// Has reports whether the definition of a hash is known.
func (ds *Definitions) Has(hash string) bool {
	ds.mu.RLock()
	defer ds.mu.RUnlock()
	return ds.byHash[hash] != nil
}

// AddUnreadable makes the text of a stored definition known that cannot be parsed. This program cannot decide for the sagas of the
// definition, but it finds them: an event that one of them waits for is an error, and is not ignored. idle reports that no saga has it now.
func (ds *Definitions) AddUnreadable(hash, text string, idle bool) {
	d := readAwaited(text)
	d.Idle = idle
	ds.mu.Lock()
	defer ds.mu.Unlock()
	ds.unreadable[hash] = d
}

// inUse records that a saga has the unreadable definition of a hash.
func (ds *Definitions) inUse(hash string) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if d, is := ds.unreadable[hash]; is {
		d.Idle = false
		ds.unreadable[hash] = d
	}
}

// awaiting calls do for each definition that sagas of this coordinator have or may have, also for unreadable ones: with its type of saga, the
// events that it awaits, and how long an event is kept that comes before its saga.
//
// For a definition that no saga has, that is 0: else the events that only a retired version awaits would be kept, each for nothing.
func (ds *Definitions) awaiting(do func(name string, awaited []saga.Answer, stash time.Duration)) {
	for _, d := range ds.known() {
		stash := cmp.Or(time.Duration(d.Spec().Stash), defaultStash)
		if ds.isIdle(d) {
			stash = 0
		}
		do(d.Spec().Saga, d.Awaited(), stash)
	}
	ds.mu.RLock()
	unreadable := maps.Clone(ds.unreadable)
	ds.mu.RUnlock()
	for _, hash := range sortedKeys(unreadable) {
		d := unreadable[hash]
		if d.Idle {
			d.Stash = 0
		}
		do(d.Saga, d.Awaited, d.Stash)
	}
}

// defaultStash is the default of saga.Spec.Stash.
const defaultStash = time.Hour

// Hashes returns the hashes of all definitions that this process has read.
func (ds *Definitions) Hashes() []string {
	ds.mu.RLock()
	defer ds.mu.RUnlock()
	all := make([]string, 0, len(ds.byHash)+len(ds.unreadable))
	all = slices.AppendSeq(all, maps.Keys(ds.byHash))
	return slices.AppendSeq(all, maps.Keys(ds.unreadable))
}

// Concern reports whether an event that answers no command may start or move a saga.
func (ds *Definitions) Concern(hop, event string) bool {
	for _, d := range ds.known() {
		if d.Concerns(hop, event) {
			return true
		}
	}
	ds.mu.RLock()
	defer ds.mu.RUnlock()
	for _, d := range ds.unreadable {
		if slices.ContainsFunc(d.Awaited, func(a saga.Answer) bool { return a.Hop == hop && a.Event == event }) {
			return true
		}
	}
	return false
}

// Names returns the types of saga that new instances have, sorted.
func (ds *Definitions) Names() []string { return ds.names }

// Current returns the definition that new instances of a saga use, or nil.
func (ds *Definitions) Current(name string) *saga.Definition { return ds.current[name] }
