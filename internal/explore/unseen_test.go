package explore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/explore"
	"github.com/troupe-go/troupe/saga"
)

func unseen(t *testing.T, change func(s *saga.Spec)) explore.Report {
	t.Helper()
	spec := sane()
	change(&spec)
	d, err := saga.Define(spec)
	require.NoError(t, err)
	r, err := explore.Explore(t.Context(), d, explore.Config{})
	require.NoError(t, err)
	require.Nil(t, r.Counterexample)
	return r
}

func TestASearchNamesThePartsThatNoExecutionUses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(s *saga.Spec)
		want   explore.Unseen
	}{
		"nothing": {func(*saga.Spec) {}, explore.Unseen{}},
		"a step": {func(s *saga.Spec) {
			st := mails("payment")
			st.When = "data.cents < 1 && data.cents > 1"
			s.Steps = append(s.Steps, st)
		}, explore.Unseen{Steps: []string{"mail"}}},
		"a condition that always holds": {func(s *saga.Spec) {
			st := mails("payment")
			st.When = "data.id.startsWith('id')"
			s.Steps = append(s.Steps, st)
		}, explore.Unseen{Conditions: []string{"steps[3].when always holds: data.id.startsWith('id')"}}},
		"an end that never holds": {func(s *saga.Spec) {
			s.Ends = []saga.End{{When: "data.payment_id == 'p' && data.payment_id == 'q'", Then: saga.ThenCompensate}}
		}, explore.Unseen{Conditions: []string{"ends[0].when never holds: data.payment_id == 'p' && data.payment_id == 'q'"}}},
		"an answer": {func(s *saga.Spec) {
			s.Steps[0].Success = append(s.Steps[0].Success, saga.Answer{Event: "Charged", When: "event.later"})
		}, explore.Unseen{Answers: []string{"steps[0].success[1]: Charged"}}},
		"a compensation's answer": {func(s *saga.Spec) {
			s.Steps[0].Retriable, s.Steps[0].Failure = true, nil
			s.Steps[0].Timeout = 0
			s.Steps = s.Steps[:1]
		},
			explore.Unseen{Answers: []string{"steps[0].compensation.success[0]: Refunded"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := unseen(t, c.change)
			require.Equal(t, c.want, r.Unseen)
			require.Equal(t, !c.want.Any(), r.Complete)
		})
	}
}

func TestASearchSaysThatNoExecutionCompletes(t *testing.T) {
	t.Parallel()
	r := unseen(t, guard(1, "1 / (data.cents - data.cents) > 0"))
	require.True(t, r.Unseen.Completed)
	require.Equal(t, []string{`stock: when: "1 / (data.cents - data.cents) > 0": division by zero`}, r.Parks)
	require.False(t, r.Complete)
}

func TestASearchOfTooManyStartsSaysWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	r := unseen(t, func(s *saga.Spec) {
		for _, v := range []string{"a", "b", "c", "d"} {
			s.Data[v] = saga.Int
			st := mails("payment")
			st.Name, st.When = "mail-"+v, "data."+v+" > 5 && data."+v+" < 100"
			s.Steps = append(s.Steps, st)
		}
	})
	require.Contains(t, r.Unseen.Start, "more than 64")
	require.Empty(t, r.Unseen.Steps)
}
