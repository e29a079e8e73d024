package explore_test

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/troupe-go/troupe/saga"
)

// withChanges returns a definition of spec with up to three changes. Sagas of spec may be moved to it, or not.
func withChanges(r *rand.Rand, spec saga.Spec) *saga.Definition {
	for {
		spec.Version++
		other := spec
		other.Steps = slices.Clone(spec.Steps)
		for range 1 + r.IntN(3) {
			changeStep(r, &other)
			changeDeadlinesOrEnds(r, &other)
		}
		if d, err := saga.Define(other); err == nil {
			return d
		}
	}
}

// changeStep changes, adds or removes a step.
func changeStep(r *rand.Rand, spec *saga.Spec) {
	k := r.IntN(len(spec.Steps))
	at := &spec.Steps[k]
	switch r.IntN(11) {
	case 0:
		at.Optional, at.Exhausted = !at.Optional, saga.Park
	case 1:
		at.Timeout = saga.Duration(time.Minute) - at.Timeout
	case 2:
		if f := at.ForEach; f != nil {
			at.ForEach = &saga.ForEach{List: f.List, As: f.As, Max: 1 + r.IntN(3)}
		}
	case 3:
		if len(at.Needs) > 0 {
			at.Needs, at.Join, at.AtLeast = at.Needs[1:], saga.All, 0
		}
	case 4:
		at.When = []string{"", "data.n < 1", "data.n < 3"}[r.IntN(3)]
	case 5:
		at.Pivot = !at.Pivot
	case 6:
		if !slices.ContainsFunc(spec.Steps, func(st saga.Step) bool { return slices.Contains(st.Needs, at.Name) }) && len(spec.Steps) > 1 {
			spec.Steps = slices.Delete(spec.Steps, k, k+1)
		}
	case 7, 8: // one more step, that needs a step or that a step needs
		more := saga.Step{
			Name: "more", Command: &saga.Command{Hop: "h0", Type: "Do"},
			Success: []saga.Answer{{Event: "Done"}}, Failure: []saga.Answer{{Event: "Refused"}},
			Compensation: &saga.Compensation{Command: &saga.Command{Hop: "h0", Type: "Undo"}, Success: []saga.Answer{{Event: "Undone"}}},
		}
		if r.IntN(2) == 0 {
			more.Needs = []string{at.Name}
		} else {
			at.Needs = append(slices.Clip(at.Needs), more.Name)
		}
		spec.Steps = append(spec.Steps, more)
	case 9:
		slices.Reverse(spec.Steps)
	default: // it awaits no event any more
		if at.Command == nil {
			at.Success, at.Failure, at.Timeout, at.Optional = nil, nil, 0, false
		}
	}
}

// changeDeadlinesOrEnds may change the deadlines and the ends.
func changeDeadlinesOrEnds(r *rand.Rand, spec *saga.Spec) {
	then := []saga.Then{saga.ThenComplete, saga.ThenCompensate, saga.ThenPark}[r.IntN(3)]
	switch r.IntN(9) {
	case 0:
		spec.Deadlines = nil
	case 1:
		until := spec.Steps[r.IntN(len(spec.Steps))].Name
		spec.Deadlines = []saga.Deadline{{Name: "due", After: saga.Duration(time.Hour), Then: then, Until: []string{until}}}
	case 2:
		spec.Ends = []saga.End{{When: []string{"data.n > 1", "!data.ok"}[r.IntN(2)], Then: then}}
	}
}

// stops returns why a saga that is neither parked nor ended cannot go on, "" if it can.
func (l *lossy) stops() string {
	s := l.mine.s
	if s.Ended() || s.Status == saga.Parked {
		return ""
	}
	for _, ss := range s.Steps {
		if ss.Phase == saga.CompensateIntent {
			return ""
		}
		if st := l.step(ss.Name); ss.Phase == saga.Intent && !l.repeats(ss.Name) && len(st.Success)+len(st.Failure) > 0 {
			return ""
		}
	}
	return "no step of it awaits anything"
}
