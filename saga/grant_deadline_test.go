package saga_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// TestASagaWhoseStartDeadlineFailedAtItsGrantGetsItsDeadlinesWhenItIsResumed: its payload could be evaluated at the time when the saga began to wait for
// its lock.
func TestASagaWhoseStartDeadlineFailedAtItsGrantGetsItsDeadlinesWhenItIsResumed(t *testing.T) {
	d, err := saga.Parse([]byte(`{"saga":"transfer","version":1,"key":"id","lock":"'all'","timeout":"2h","data":{"id":"string","n":"int"},
	 "deadlines":[{"name":"remind","after":"1h","payload":{"x":"now < timestamp('2000-01-01T00:00:00Z') ? 1 : 100 / data.n"},"emit":[{"event":"Remind","input":{"x":"deadline.x"}}]}],
	 "steps":[{"name":"pay","command":{"hop":"bank","type":"Pay"},"success":[{"event":"Paid"}],"irreversible":"cheap","timeout":"30m"}]}`))
	require.NoError(t, err)
	now := time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC)
	var s saga.State
	take := func(e saga.Event) (fx saga.Effects) {
		now = now.Add(time.Minute)
		s, fx = saga.Decide(d, s, e, now)
		require.Empty(t, fx.Refused+fx.Ignored)
		return fx
	}
	take(saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "1", "n": int64(0)}, Locked: true})
	require.Equal(t, saga.Waiting, s.Status)
	now = now.Add(48 * time.Hour)
	fx := take(saga.Event{Kind: saga.Granted})
	require.Equal(t, saga.Parked, s.Status)
	require.Contains(t, s.Reason, "deadline remind")
	require.False(t, fx.Unlock, "it keeps the lock")

	parked, again := saga.Decide(d, s, saga.Event{Kind: saga.ActResume, Actor: "ann", Reason: "ticket 4711"}, now)
	require.Contains(t, again.Alert, "deadline remind", "the cause is still there")
	require.Empty(t, again.Commands)
	require.Equal(t, saga.Parked, parked.Status)
	take(saga.Event{Kind: saga.ActSet, Fields: map[string]any{"n": int64(4)}, Actor: "ann", Reason: "ticket 4711"})
	take(saga.Event{Kind: saga.ActResume, Actor: "ann", Reason: "ticket 4711"})
	require.Equal(t, saga.Running, s.Status)
	due := make(map[string]time.Duration)
	for _, a := range s.Deadlines {
		due[a.Name] = a.At.Sub(now)
	}
	require.Equal(t, map[string]time.Duration{"pay.timeout": 30 * time.Minute, "remind": time.Hour, saga.TimeoutName: 2 * time.Hour}, due)
}

// TestASagaThatIsParkedAtItsGrantEndsByACancel: a deadline from its start cannot be scheduled, and a saga that goes back needs none.
func TestASagaThatIsParkedAtItsGrantEndsByACancel(t *testing.T) {
	d, err := saga.Parse([]byte(`{"saga":"transfer","version":1,"key":"id","lock":"'all'","data":{"id":"string","n":"int"},
	 "cancel":{"events":[{"event":"Withdrawn","hop":"desk"}]},
	 "deadlines":[{"name":"remind","after":"1h","payload":{"x":"now < timestamp('2000-01-01T00:00:00Z') ? 1 : 100 / data.n"},"emit":[{"event":"Remind","input":{"x":"deadline.x"}}]}],
	 "steps":[{"name":"pay","command":{"hop":"bank","type":"Pay"},"success":[{"event":"Paid"}],"irreversible":"cheap","timeout":"30m"}]}`))
	require.NoError(t, err)
	now, key := time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC), "1"
	s, _ := saga.Decide(d, saga.State{}, saga.Event{Kind: saga.Started, Fields: map[string]any{"id": key, "n": int64(0)}, Locked: true}, now)
	now = now.Add(48 * time.Hour)
	s, _ = saga.Decide(d, s, saga.Event{Kind: saga.Granted}, now)
	require.Equal(t, saga.Parked, s.Status)
	s, fx := saga.Decide(d, s, saga.Event{Kind: saga.Observed, Hop: "desk", Type: "Withdrawn", Key: &key, Message: "m-1"}, now)
	require.Equal(t, saga.Compensated, s.Status)
	require.True(t, fx.Unlock)
}
