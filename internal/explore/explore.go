package explore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/troupe-go/troupe/saga"
)

// Config bounds a search. The zero value searches all orders of messages across topics, all refusals of steps and all
// deadlines, without duplicates, operator actions or commands that are given up.
type Config struct {
	// Start has the variables that instances start with; all of them are searched at once. Default: every combination of the
	// variables that no step sets, on both sides of every number or text that a condition compares them with.
	Start []map[string]any
	// Duplicates is the maximum number of messages that are delivered twice, or again after a crash. 0 to 15.
	Duplicates int
	// Buttons is the maximum number of operator actions. 0 to 7.
	Buttons int
	// Exhausted lets hops give commands up, and refuse compensations.
	Exhausted bool
	// Unordered lets a topic deliver its messages in any order.
	Unordered bool
	// Careless lets the operator resolve and skip steps without a check.
	Careless bool
	// States is the maximum number of states that are searched. Default 5,000,000, which take some 500 MB.
	States int
	// Decide is the function that is explored. Default saga.Decide. It must be pure.
	Decide func(*saga.Definition, saga.State, saga.Event, time.Time) (saga.State, saga.Effects)
	// Progress is called every five seconds; nil: never.
	Progress func(Report)
}

const (
	defaultStates = 5_000_000
	maxEpoch      = 15
)

// A Report is the result of a search.
type Report struct {
	Saga string `json:"saga"`
	// States is the number of states that were found, and Transitions the number of moves, to a known or a new state.
	States      int `json:"states"`
	Transitions int `json:"transitions"`
	// Sagas is the number of different states of the saga itself among them, and Decisions the number of decisions made on
	// these.
	Sagas     int `json:"sagas"`
	Decisions int `json:"decisions"`
	// Depth is the number of moves to the state that is farthest from the start, by a shortest path.
	Depth int `json:"depth"`
	// Ends has, by status, the number of states in which nothing happens any more unless an operator or another service acts.
	Ends map[saga.Status]int `json:"ends"`
	// Complete is true if everything within the bounds was searched. It is false if the bound of states was reached, if
	// there is a Counterexample, or if a part of the definition is Unseen.
	Complete bool `json:"complete"`
	// Bounded is true if the bound of states was reached.
	Bounded bool `json:"bounded,omitempty"`
	// Unseen lists the parts of the definition that no execution has used. It is empty if there is a Counterexample.
	Unseen Unseen `json:"unseen,omitzero"`
	// Parks are the reasons for which an answer or the start has parked the saga, such as an expression that cannot be evaluated.
	Parks          []string        `json:"parks,omitempty"`
	Took           time.Duration   `json:"took_ns"`
	Counterexample *Counterexample `json:"counterexample,omitempty"`
}

// PerSecond returns the number of states found per second.
func (r Report) PerSecond() float64 { return float64(r.States) / max(r.Took.Seconds(), 1e-9) }

// Explore searches the possible executions of a saga of d. A broken invariant is not an error; it is in
// Report.Counterexample, which has as few moves as any. Explore uses one goroutine, and stops early with ctx's error.
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
	pressed      []uint16   // the events of the model's operator actions
	comes        [][]uint16 // the awaited events, with each of their contents

	used    map[string]bool // the parts of the definition that some move has used, as paths
	seen    *visited
	from    uint32 // the world whose moves are searched
	next    world  // the world that a move leads to
	problem string // the invariant that next breaks
	bytes   []byte
	report  Report
	found   *finding

	// visit is called for each move, with the world that it leads to in next. It returns false to stop.
	visit   func() bool
	stopped bool
	tale    *[]Step // if not nil, the steps of the move are appended here
}

// finding is a move that breaks an invariant.
type finding struct {
	from    uint32
	problem string
	still   bool // the problem is in the world from itself, in which nothing moves
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
		cfg: cfg, m: m, used: make(map[string]bool), seen: newVisited(),
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

// search is a breadth-first search: the first broken invariant that it finds takes as few moves as any.
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
	x.report.Bounded = bound
	if x.found == nil {
		x.report.Unseen, x.report.Parks = x.unseen(), x.parks()
	}
	x.report.Complete = x.found == nil && !bound && !x.report.Unseen.Any()
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

// errLost reports that an execution could not be repeated, which is a defect of this package.
var errLost = errors.New("explore: a world cannot be reached again from the one before")

// tell repeats the moves to a finding, and records the steps.
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
