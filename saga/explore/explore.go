package explore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/troupe-go/troupe/saga"
)

// Config bounds a search. The zero value searches all orders, refusals and deadlines, without duplicates, an operator or
// commands that are given up.
type Config struct {
	// Start are the variables that instances start with, each its own search from the same root. Default: those that no
	// step sets, on both sides of every number or text that a condition compares them with.
	Start []map[string]any
	// Duplicates is how many messages at most come twice, or after a crash again. 0 to 15.
	Duplicates int
	// Buttons is how many at most an operator presses. 0 to 7.
	Buttons int
	// Exhausted says that hops give commands up, and that compensations are refused.
	Exhausted bool
	// Unordered says that a topic gives its messages in any order.
	Unordered bool
	// Careless says that the operator resolves and skips without looking.
	Careless bool
	// States is how many are looked at. Default 5,000,000, which take some 500 MB.
	States int
	// Decide is what is explored. Default saga.Decide. It must be pure.
	Decide func(*saga.Definition, saga.State, saga.Event, time.Time) (saga.State, saga.Effects)
	// Progress is called every five seconds; nil: not.
	Progress func(Report)
}

const (
	defaultStates = 5_000_000
	maxEpoch      = 15
)

// A Report is what a search has come to.
type Report struct {
	Saga string `json:"saga"`
	// States were looked at, and Transitions led to one, known or new.
	States      int `json:"states"`
	Transitions int `json:"transitions"`
	// Sagas are the states of the saga itself among them, and Decisions those that were made on them.
	Sagas     int `json:"sagas"`
	Decisions int `json:"decisions"`
	// Depth is how many moves the longest of the shortest ways has.
	Depth int `json:"depth"`
	// Ends says in how many states nothing moves any more, unless a person or another service does something, by status.
	Ends map[saga.Status]int `json:"ends"`
	// Complete says that there is nothing else within the bounds; else the bound of states was reached, or there is a
	// Counterexample.
	Complete       bool            `json:"complete"`
	Took           time.Duration   `json:"took_ns"`
	Counterexample *Counterexample `json:"counterexample,omitempty"`
}

// PerSecond is how many states were looked at in a second.
func (r Report) PerSecond() float64 { return float64(r.States) / max(r.Took.Seconds(), 1e-9) }

// Explore searches what could happen to a saga of d. A promise that breaks is no error but Report.Counterexample, which is
// of the shortest there are. It uses one goroutine, and ends early with ctx's error.
func Explore(ctx context.Context, d *saga.Definition, cfg Config) (Report, error) {
	x, err := newExplorer(d, cfg)
	if err != nil {
		return Report{}, fmt.Errorf("explore %s: %w", d, err)
	}
	return x.search(ctx)
}

type explorer struct {
	cfg Config
	m   *model

	sagas        []*instance
	sagaIndex    map[string]uint32
	events       []event
	eventIndex   map[string]uint16
	answers      map[int]uint16
	commands     []command
	commandIndex map[command]uint16
	pressed      []uint16   // the events of the model's buttons
	comes        [][]uint16 // the events of the awaited ones

	seen    *visited
	from    uint32 // the world that is looked at
	next    world  // the one that a move leads to
	problem string // that it has
	bytes   []byte
	report  Report
	found   *finding

	// visit takes each world that a move leads to. It says false to stop.
	visit   func() bool
	stopped bool
	tale    *[]Step // what happens is told here, if not nil
}

// finding is a move that breaks a promise.
type finding struct {
	from    uint32
	problem string
	still   bool // it is from itself, in which nothing moves
}

func newExplorer(d *saga.Definition, cfg Config) (*explorer, error) {
	if cfg.Duplicates < 0 || cfg.Duplicates > 15 {
		return nil, fmt.Errorf("%d duplicates: want 0 to 15", cfg.Duplicates)
	}
	if cfg.Buttons < 0 || cfg.Buttons > 7 {
		return nil, fmt.Errorf("%d buttons: want 0 to 7", cfg.Buttons)
	}
	if cfg.States < 0 || cfg.States > 1<<31 {
		return nil, fmt.Errorf("%d states: want 1 to 2,147,483,648, or 0 for %d", cfg.States, defaultStates)
	}
	if cfg.States == 0 {
		cfg.States = defaultStates
	}
	if cfg.Decide == nil {
		cfg.Decide = saga.Decide
	}
	m, err := newModel(d, cfg.Start)
	if err != nil {
		return nil, err
	}
	for _, s := range m.starts {
		if _, _, err := d.Start(s.Fields); err != nil {
			return nil, fmt.Errorf("start: %w", err)
		}
	}
	x := &explorer{
		cfg: cfg, m: m, seen: newVisited(),
		sagaIndex: make(map[string]uint32), eventIndex: make(map[string]uint16), answers: make(map[int]uint16),
		commandIndex: make(map[command]uint16),
	}
	for _, b := range m.buttons {
		x.pressed = append(x.pressed, x.event(event{Event: b.event}))
	}
	for _, a := range m.awaited {
		var all []uint16
		for _, fields := range a.fields {
			all = append(all, x.event(event{Event: saga.Event{Kind: saga.Observed, Hop: m.hops[a.hop], Type: a.typ, Fields: fields}}))
		}
		x.comes = append(x.comes, all)
	}
	x.report = Report{Saga: d.String(), Ends: make(map[saga.Status]int)}
	return x, nil
}

func (x *explorer) empty() world {
	return world{places: make([]place, len(x.m.steps)), queues: make([][]uint16, hopQueues+2*len(x.m.hops))}
}

// search is breadth first: the first promise that breaks breaks in as few moves as any.
func (x *explorer) search(ctx context.Context) (Report, error) {
	began := time.Now()
	w := x.empty()
	w.saga = x.instance(saga.State{})
	for _, s := range x.m.starts {
		w.queues[startQueue] = append(w.queues[startQueue][:0], x.event(event{Event: s}))
		x.bytes = w.encode(x.bytes[:0])
		x.seen.add(x.bytes, 0)
	}
	bound := false
	x.visit = func() bool {
		x.report.Transitions++
		if x.problem != "" {
			x.found = &finding{from: x.from, problem: x.problem}
			return false
		}
		x.bytes = x.next.encode(x.bytes[:0])
		if x.seen.len() < x.cfg.States {
			x.seen.add(x.bytes, x.from)
		} else {
			bound = true
		}
		return true
	}
	level := uint32(x.seen.len())
	last := began
	for i := uint32(0); int(i) < x.seen.len() && x.found == nil && !bound; i++ {
		if i == level {
			x.report.Depth++
			level = uint32(x.seen.len())
		}
		if i%4096 == 0 {
			if err := ctx.Err(); err != nil {
				return x.sum(began), err
			}
			if now := time.Now(); x.cfg.Progress != nil && now.Sub(last) >= 5*time.Second {
				last = now
				x.cfg.Progress(x.sum(began))
			}
		}
		x.from = i
		w.decode(x.seen.world(i))
		x.expand(&w)
		if x.stopped {
			break
		}
		if problem := x.still(&w); problem != "" {
			x.found = &finding{from: i, problem: problem, still: true}
		}
	}
	x.report.Complete = x.found == nil && !bound
	report := x.sum(began)
	if x.found != nil {
		report.Counterexample = x.tell(*x.found)
	}
	return report, nil
}

func (x *explorer) sum(began time.Time) Report {
	r := x.report
	r.States, r.Sagas, r.Took = x.seen.len(), len(x.sagas), time.Since(began)
	for _, in := range x.sagas {
		for _, o := range in.decisions {
			if o != nil {
				r.Decisions++
			}
		}
	}
	return r
}

// errLost says that a way could not be told again, which is a defect of this package.
var errLost = errors.New("explore: a world cannot be reached again from the one before")

// tell goes the way to a finding once more, and says what happens on it.
func (x *explorer) tell(f finding) *Counterexample {
	var way []uint32
	for i := f.from; ; i = x.seen.parent[i] {
		way = append([]uint32{i}, way...)
		if int(i) < len(x.m.starts) {
			break
		}
	}
	c := &Counterexample{Problem: f.problem, d: x.m.d, decide: x.cfg.Decide}
	w := x.empty()
	for k, i := range way {
		if k == len(way)-1 && f.still {
			break
		}
		want := ""
		if k < len(way)-1 {
			want = string(x.seen.world(way[k+1]))
		}
		var steps, told []Step
		x.tale, x.stopped = &steps, false
		x.visit = func() bool {
			x.bytes = x.next.encode(x.bytes[:0])
			if want == "" && x.problem == f.problem || want != "" && x.problem == "" && string(x.bytes) == want {
				told = append([]Step{}, steps...)
				return false
			}
			return true
		}
		w.decode(x.seen.world(i))
		x.expand(&w)
		if told == nil {
			panic(errLost)
		}
		c.Steps = append(c.Steps, told...)
	}
	return c
}
