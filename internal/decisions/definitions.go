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

// Definitions holds the known definitions by hash, and for each type of saga the one that new instances use.
type Definitions struct {
	current map[string]*saga.Definition
	names   []string // of current, sorted
	mu      sync.RWMutex
	byHash  map[string]*saga.Definition // guarded by mu
	all     []*saga.Definition          // the values of byHash, ordered by saga and hash; guarded by mu
	// idle holds the hashes of definitions that no saga under way had when the process began, and of which this process has loaded no
	// saga since. Most are retired versions. Guarded by mu.
	idle map[string]bool
	// unreadable holds the stored definitions that cannot be parsed, by hash. Guarded by mu.
	unreadable map[string]unreadableDefinition
	// Find loads the definition with this hash. Of calls Find if this process does not know the hash, since another process has started
	// the saga. If Find is nil, Of returns an error for an unknown hash.
	Find func(ctx context.Context, hash string) (*saga.Definition, error)
	// MaxBytes limits the memory of the definitions from Find: when they take more by the estimate of DefinitionBytes, arbitrary ones are
	// forgotten. 0: no limit, as for a coordinator, which has to know all definitions that its sagas have.
	MaxBytes   int
	found      map[string]int // estimated bytes of the definitions from Find, by hash, if MaxBytes limits them; guarded by mu
	foundBytes int            // sum of found; guarded by mu
}

// DefinitionBytes estimates the memory of a definition whose text has so many bytes. Measured were 38 KiB for a text of 1.3 kB, and 1.9 MiB
// for one of 210 kB.
func DefinitionBytes(text int) int { return 32<<10 + 9*text }

// NewDefinitions returns Definitions in which new instances use defs, at most one for each type.
func NewDefinitions(defs []*saga.Definition) (*Definitions, error) {
	ds := &Definitions{
		current: make(map[string]*saga.Definition), byHash: make(map[string]*saga.Definition),
		idle: make(map[string]bool), unreadable: make(map[string]unreadableDefinition), found: make(map[string]int),
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

// known returns all definitions, except unreadable ones, ordered by saga and hash.
func (ds *Definitions) known() []*saga.Definition {
	ds.mu.RLock()
	defer ds.mu.RUnlock()
	return ds.all
}

// knows reports whether a definition of the type of saga id is known.
func (ds *Definitions) knows(id string) bool {
	name, _, _ := strings.Cut(id, "/")
	return slices.ContainsFunc(ds.known(), func(d *saga.Definition) bool { return d.Spec().Saga == name })
}

func (ds *Definitions) sort() {
	ds.all = slices.SortedFunc(maps.Values(ds.byHash), func(a, b *saga.Definition) int {
		return cmp.Or(cmp.Compare(a.Spec().Saga, b.Spec().Saga), cmp.Compare(a.Hash(), b.Hash()))
	})
}

// Of returns the definition of a hash. If the hash is not known, Of loads the definition with Find. The caller has read a saga with this
// definition, so Of records that the definition is not idle.
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
		if ds.MaxBytes > 0 {
			ds.limit(hash, d)
		}
	}
	return d, err
}

// limit counts the definition of hash, which comes from Find, and forgets others from Find until MaxBytes suffices.
func (ds *Definitions) limit(hash string, d *saga.Definition) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	ds.foundBytes -= ds.found[hash] // two callers may find it at the same time
	ds.found[hash] = DefinitionBytes(len(d.JSON()))
	ds.foundBytes += ds.found[hash]
	forgotten := false
	for other, bytes := range ds.found {
		if ds.foundBytes <= ds.MaxBytes {
			break
		}
		if other != hash {
			ds.foundBytes -= bytes
			delete(ds.found, other)
			delete(ds.byHash, other)
			delete(ds.idle, other)
			forgotten = true
		}
	}
	if forgotten {
		ds.sort()
	}
}

// Add adds a definition that sagas have or may have. If it was idle, it is not idle any more.
func (ds *Definitions) Add(hash string, d *saga.Definition) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	ds.byHash[hash] = d
	delete(ds.idle, hash)
	ds.sort()
}

// AddIdle adds a definition that no saga under way has. An event that only idle definitions await is not stashed.
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

// AddUnreadable adds a stored definition that this program cannot parse. The program cannot decide for the definition's sagas, but reads
// from text which events they await. Such an event then finds its saga, and the load of the saga fails: the event becomes a dead letter,
// and is not ignored. idle reports that no saga under way has the definition.
func (ds *Definitions) AddUnreadable(hash, text string, idle bool) {
	d := readAwaited(text)
	d.Idle = idle
	ds.mu.Lock()
	defer ds.mu.Unlock()
	ds.unreadable[hash] = d
}

// inUse records that a saga has the unreadable definition of a hash, so that the definition is not idle.
func (ds *Definitions) inUse(hash string) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if d, is := ds.unreadable[hash]; is {
		d.Idle = false
		ds.unreadable[hash] = d
	}
}

// awaiting calls do for each definition, also for unreadable ones. name is the type of saga. awaited lists the events that its sagas
// await. stash is the time for which an event that comes before its saga is kept. It is 0 for an idle definition, which is mostly a retired
// version: no new saga would take the event.
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

// Hashes returns the hashes of all definitions, also of unreadable ones.
func (ds *Definitions) Hashes() []string {
	ds.mu.RLock()
	defer ds.mu.RUnlock()
	all := make([]string, 0, len(ds.byHash)+len(ds.unreadable))
	all = slices.AppendSeq(all, maps.Keys(ds.byHash))
	return slices.AppendSeq(all, maps.Keys(ds.unreadable))
}

// Concern reports whether an event that answers no command may start a saga, or whether a saga may await it.
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
