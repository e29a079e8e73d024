package explore_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/explore"
	"github.com/troupe-go/troupe/saga"
)

// chance returns a random small definition with any feature of a definition, as the verifier accepts it: a step is
// compensated by its own hop, and every step before the pivot can be undone. Where optional is true, half of the steps are
// optional, and some need a quorum.
func chance(r *rand.Rand, optional bool) saga.Spec {
	one := func(of int) bool { return r.IntN(of) == 0 }
	spec := saga.Spec{Saga: "chance", Version: 1, Key: "id", Data: map[string]saga.Type{
		"id": saga.String, "n": saga.Int, "ok": saga.Bool,
	}}
	if one(3) {
		spec.Timeout = saga.Duration(time.Hour)
	}
	if one(4) {
		spec.Lock = "data.id"
	}
	pivot := r.IntN(5) // the index may be of no step: no pivot
	undoable := one(4)
	for i := range 2 + r.IntN(2) {
		st := saga.Step{Name: "s" + strconv.Itoa(i)}
		for k := range i {
			if one(2) {
				st.Needs = append(st.Needs, "s"+strconv.Itoa(k))
			}
		}
		if len(st.Needs) > 1 {
			st.Join = []saga.Join{saga.All, saga.First, saga.Merge}[r.IntN(3)]
		}
		if optional && st.Join == saga.All && len(st.Needs) > 0 && one(2) {
			st.AtLeast = 1 + r.IntN(len(st.Needs))
		}
		st.Optional = optional && i != pivot && one(2)
		hop := "h" + strconv.Itoa(r.IntN(2))
		if one(4) {
			st.When = "data.n < 2"
		}
		if one(2) {
			st.Timeout = saga.Duration(time.Minute)
		}
		if one(6) && i != pivot {
			st.Success = []saga.Answer{{Hop: hop, Event: "Came" + strconv.Itoa(i)}}
			if one(2) {
				st.Failure = []saga.Answer{{Hop: hop, Event: "Failed" + strconv.Itoa(i)}}
			}
			spec.Steps = append(spec.Steps, st)
			continue
		}
		st.Command = &saga.Command{Hop: hop, Type: "Do"}
		st.Success = []saga.Answer{{Event: "Done"}}
		if i == 0 {
			st.Success[0].Set = saga.Mapping{"ok": "event.ok"}
		}
		st.Failure = []saga.Answer{{Event: "Refused"}}
		if one(3) && !st.Optional {
			st.Exhausted = saga.CompensateThen
		}
		st.Pivot = i == pivot
		switch {
		case st.Pivot && !undoable:
		case one(6):
			st.Irreversible = "nobody minds"
		default:
			st.Compensation = &saga.Compensation{Command: &saga.Command{Hop: hop, Type: "Undo"}, Success: []saga.Answer{{Event: "Undone"}}}
			if one(3) {
				st.Compensation.Timeout = saga.Duration(time.Minute)
			}
		}
		if i > pivot && one(2) {
			st.Retriable = true
		}
		spec.Steps = append(spec.Steps, st)
	}
	if one(3) {
		then := []saga.Then{saga.ThenCompensate, saga.ThenPark, saga.ThenComplete, saga.GoOn}[r.IntN(4)]
		spec.Deadlines = []saga.Deadline{{Name: "due", After: saga.Duration(time.Hour), Then: then, Emit: []saga.Emit{{Event: "Due"}}}}
	}
	if one(4) {
		then := []saga.Then{saga.ThenCompensate, saga.ThenPark, saga.ThenComplete}[r.IntN(3)]
		spec.Ends = []saga.End{{When: "!data.ok", Then: then}}
	}
	return spec
}

// cancelByChance declares a cancel of the saga: by an event, an operator, or both, until a step or the pivot begins.
func cancelByChance(r *rand.Rand, spec *saga.Spec) {
	c := &saga.Cancel{Operator: r.IntN(2) == 0}
	if at := r.IntN(2 * len(spec.Steps)); at < len(spec.Steps) {
		c.Before = spec.Steps[at].Name
	}
	if !c.Operator || r.IntN(2) == 0 {
		c.Events = []saga.Answer{{Hop: "h0", Event: "Cancel", When: []string{"", "event.sure"}[r.IntN(2)], Reason: "event.reason"}}
	}
	pivot := slices.ContainsFunc(spec.Steps, func(st saga.Step) bool { return st.Pivot })
	if len(c.Events) > 0 && (pivot || c.Before != "") && r.IntN(2) == 0 {
		c.Refused = []saga.Emit{{Event: "TooLate", Failure: true, Input: saga.Mapping{"id": "data.id"}}}
	}
	spec.Cancel = c
}

// forEachByChance lets a step with a command, or two, run for each element of a list. Their answers collect.
func forEachByChance(r *rand.Rand, spec *saga.Spec) {
	spec.Data["l"], spec.Data["c"] = saga.Any, saga.Any
	for range 2 {
		st := &spec.Steps[r.IntN(len(spec.Steps))]
		if st.Command == nil || st.Pivot || st.ForEach != nil {
			continue
		}
		st.ForEach = &saga.ForEach{List: "data.l", As: "x", Max: 1 + r.IntN(3), Parallel: r.IntN(2)}
		command := *st.Command
		command.Input = saga.Mapping{"x": "x", "i": "index"}
		st.Command = &command
		if st.Success[0].Set != nil {
			st.Success[0].Set = saga.Mapping{"c": "event.ok"}
		}
		if c := st.Compensation; c != nil && st.Success[0].Set != nil {
			c.Command.Input = saga.Mapping{"x": "x", "c": "data.c[index]"}
		}
	}
}

// byChance explores the definition of seed, with changes.
func byChance(t *testing.T, seed uint64, optional bool, states int, change ...func(*rand.Rand, *saga.Spec)) int {
	r := rand.New(rand.NewPCG(seed, 1))
	spec := chance(r, optional)
	for i, c := range change {
		c(rand.New(rand.NewPCG(seed, uint64(2+i))), &spec)
	}
	d, err := saga.Define(spec)
	require.NoError(t, err)
	cfg := explore.Config{
		Duplicates: r.IntN(2), Buttons: r.IntN(3), Exhausted: r.IntN(2) == 0, Unordered: r.IntN(4) == 0, States: states,
	}
	report, err := explore.Explore(t.Context(), d, cfg)
	require.NoError(t, err)
	if report.Counterexample != nil {
		t.Fatalf("seed %d, %+v:\n%s\n%s", seed, cfg, d.JSON(), report.Counterexample)
	}
	return report.States
}

// These tests use few random definitions. .ci/soak runs FuzzDefinitionsByChance with thousands.

func TestDefinitionsByChanceKeepTheirPromises(t *testing.T) {
	t.Parallel()
	states := 0
	for seed := range uint64(20) {
		states += byChance(t, seed, false, 5_000)
	}
	t.Logf("%d states", states)
}

func TestDefinitionsWithOptionalStepsByChanceKeepTheirPromises(t *testing.T) {
	t.Parallel()
	states := 0
	for seed := range uint64(30) {
		states += byChance(t, seed, true, 5_000)
	}
	t.Logf("%d states", states)
}

func TestDefinitionsWithACancelByChanceKeepTheirPromises(t *testing.T) {
	t.Parallel()
	states := 0
	for seed := range uint64(30) {
		states += byChance(t, seed, seed%2 == 1, 5_000, cancelByChance)
	}
	t.Logf("%d states", states)
}

func TestDefinitionsWithListsByChanceKeepTheirPromises(t *testing.T) {
	t.Parallel()
	states := 0
	for seed := range uint64(18) {
		changes := []func(*rand.Rand, *saga.Spec){forEachByChance}
		if seed%3 == 0 {
			changes = append(changes, cancelByChance)
		}
		states += byChance(t, seed, seed%2 == 1, 4_000, changes...)
	}
	t.Logf("%d states", states)
}

func FuzzDefinitionsByChance(f *testing.F) {
	f.Add(uint64(10)) // a pivot in doubt; a deadline that completes
	f.Fuzz(func(t *testing.T, seed uint64) {
		byChance(t, seed, seed%2 == 1, 20_000)
		byChance(t, seed, seed%2 == 1, 20_000, cancelByChance)
		byChance(t, seed, seed%2 == 1, 20_000, forEachByChance)
		byChance(t, seed, seed%2 == 1, 20_000, forEachByChance, cancelByChance)
	})
}
