package saga_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

func step(name string, pivot bool) saga.Step {
	st := saga.Step{
		Name: name, Pivot: pivot, Command: &saga.Command{Hop: name, Type: "Do"},
		Success: []saga.Answer{{Event: "Done"}}, Failure: []saga.Answer{{Event: "Refused"}},
	}
	if !pivot {
		st.Compensation = &saga.Compensation{Command: &saga.Command{Hop: name, Type: "Undo"}, Success: []saga.Answer{{Event: "Undone"}}}
	}
	return st
}

// besides returns a saga with a pivot that runs in parallel with a step that can be compensated.
func besides(t *testing.T, deadlines ...saga.Deadline) *run {
	d, err := saga.Define(saga.Spec{
		Saga: "besides", Version: 1, Key: "id", Data: map[string]saga.Type{"id": saga.String},
		Steps: []saga.Step{step("pivot", true), step("a", false)}, Deadlines: deadlines,
	})
	require.NoError(t, err)
	r := &run{t: t, d: d, now: noon}
	require.Len(t, r.take(saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "1"}}).Commands, 2)
	return r
}

func TestAPivotsAnswerDecidesTheStepsBesideIt(t *testing.T) {
	for _, ends := range []struct {
		outcome string
		status  saga.Status
		sends   []string
	}{
		{"success", saga.Completed, nil},
		{"failure", saga.Compensating, []string{"a/compensate"}},
	} {
		r := besides(t)
		r.take(answer("a", "forward", "success", "Done", nil))
		r.take(saga.Event{Kind: saga.ActCompensate, Actor: "me"})
		fx := r.take(answer("pivot", "forward", "exhausted", "troupe.Exhausted", nil))
		require.Empty(t, sent(fx), "its dead letter may be redriven, and then there is no way back")
		require.Equal(t, saga.Parked, r.s.Status)
		fx = r.take(answer("pivot", "forward", ends.outcome, "Done", nil))
		require.Equal(t, ends.status, r.s.Status)
		require.Equal(t, ends.sends, sent(fx))
	}
}

func TestADeadlineDoesNotCompleteWhatGoesBack(t *testing.T) {
	r := besides(t, saga.Deadline{Name: "enough", After: saga.Duration(time.Hour), Then: saga.ThenComplete})
	r.take(answer("a", "forward", "failure", "Refused", nil))
	require.True(t, r.s.Back)
	r.now = noon.Add(time.Hour)
	r.take(saga.Event{Kind: saga.Fired, Deadline: "enough"})
	require.Equal(t, saga.Compensating, r.s.Status)
	r.take(answer("pivot", "forward", "failure", "Refused", nil))
	require.Equal(t, saga.Compensated, r.s.Status)
}
