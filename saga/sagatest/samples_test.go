package sagatest

import (
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/saga"
)

// keys are the keys of random sagas. They are few, so that messages meet sagas.
var keys = []string{"k-1", "k-2", "k-3"}

// samples holds, for the fields that a definition reads of events, the types that are required and the values that they are
// compared with.
type samples struct {
	events map[string]map[string]sample // by event type and field
	bounds map[string][]any             // by variable
	set    map[string]bool              // variables that steps set
	finds  map[string]bool              // variables by which events find sagas: "" finds none
}

type sample struct {
	variable string // the variable that it is assigned to
	typ      saga.Type
	bounds   []any
	key      bool
}

func samplesOf(defs []*saga.Definition) map[string]*samples {
	all := make(map[string]*samples)
	for _, d := range defs {
		all[d.Spec().Saga] = readSamples(d.Spec())
	}
	return all
}

func readSamples(spec saga.Spec) *samples {
	s := &samples{
		make(map[string]map[string]sample), make(map[string][]any), make(map[string]bool), make(map[string]bool),
	}
	env, err := expr.NewEnv(map[string]expr.Fields{
		"data": expr.Fields(spec.Data), "saga": {"id": expr.String, "key": expr.String, "reason": expr.String, "compensated": expr.Any},
		"event": nil,
	})
	if err != nil {
		panic(err) // the definition was compiled with the same fields
	}
	look := func(event, text, variable string, typ saga.Type) {
		if text == "" {
			return
		}
		x, err := env.Compile(text, saga.Any)
		if err != nil {
			panic(err)
		}
		for _, r := range x.Reads() {
			if r.Object != "event" {
				continue
			}
			if s.events[event] == nil {
				s.events[event] = make(map[string]sample)
			}
			f := s.events[event][r.Field]
			if text == "event."+r.Field {
				f.variable, f.typ, f.key = variable, typ, f.key || variable == spec.Key
			}
			s.events[event][r.Field] = f
		}
		for _, b := range x.Bounds() {
			if b.Object == "data" {
				s.bounds[b.Field] = append(s.bounds[b.Field], b.Value)
				continue
			}
			if f, reads := s.events[event][b.Field]; reads && b.Object == "event" {
				f.bounds = append(f.bounds, b.Value)
				s.events[event][b.Field] = f
			}
		}
	}
	sets := func(event string, set saga.Mapping) {
		for _, name := range slices.Sorted(maps.Keys(set)) {
			look(event, set[name], name, spec.Data[name])
		}
	}
	for _, st := range spec.Start {
		look(st.Event, st.When, "", saga.Any)
		sets(st.Event, st.Set)
	}
	for _, st := range spec.Steps {
		look("", st.When, "", saga.Any)
		answers := slices.Concat(st.Success, st.Failure)
		if st.Compensation != nil {
			answers = append(answers, st.Compensation.Success...)
		}
		for _, a := range answers {
			look(a.Event, a.When, "", saga.Any)
			look(a.Event, a.Reason, "", saga.String)
			sets(a.Event, a.Set)
			if a.By != nil {
				s.finds[a.By.Variable] = true
			}
			for name := range a.Set {
				s.set[name] = true
			}
		}
	}
	for _, e := range spec.Ends {
		look("", e.When, "", saga.Any)
	}
	if spec.Cancel != nil {
		for _, a := range spec.Cancel.Events {
			look(a.Event, a.When, "", saga.Any)
			look(a.Event, a.Reason, "", saga.String)
		}
	}
	return s
}

// fields returns random fields for an event.
func (s *samples) fields(r *rand.Rand, key, event string) Fields {
	fields := make(Fields)
	for _, name := range slices.Sorted(maps.Keys(s.events[event])) {
		f := s.events[event][name]
		if f.key {
			fields[name] = key
			continue
		}
		fields[name] = s.value(r, f.variable, f.typ, f.bounds)
	}
	return fields
}

// value returns a random value of a type, mostly at or next to a bound. A variable, or "", is the one that it is assigned to.
func (s *samples) value(r *rand.Rand, variable string, typ saga.Type, bounds []any) any {
	bounds = slices.Concat(bounds, s.bounds[variable])
	if s.finds[variable] && typ == saga.String {
		return pick(r, []string{"a", "b"})
	}
	if len(bounds) > 0 && r.IntN(4) > 0 {
		switch b := pick(r, bounds).(type) {
		case int64:
			return b + r.Int64N(3) - 1
		case float64:
			return b + float64(r.IntN(3)-1)/2
		default:
			return b
		}
	}
	switch typ {
	case saga.String:
		return pick(r, []string{"", "a", "b"})
	case saga.Int:
		return pick(r, []int64{-1, 0, 1, 1 << 40})
	case saga.Double:
		return pick(r, []float64{-1, 0, 0.5, 1e12})
	case saga.Bool:
		return r.IntN(4) > 0
	}
	return pick(r, []any{"a", int64(1), true})
}
