package run

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/demo"
)

func silent() *progress { return &progress{w: discard{}} }

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func TestTheWaitEndsWhenEveryOrderHas(t *testing.T) {
	w := newWorld(t)
	w.reset()
	all := func() int { return 4 }
	ended, err := untilEnded(t.Context(), w.pools["order"], countsSQL[demo.Orchestration], 4, all, time.Minute, silent())
	require.NoError(t, err)
	require.True(t, ended)
	c, err := readCounts(t.Context(), w.pools["order"], countsSQL[demo.Orchestration])
	require.NoError(t, err)
	require.Equal(t, counts{Completed: 1, Compensated: 2, Parked: 1, Decisions: 16}, c)
	require.EqualValues(t, 4, c.ended())

	quiet, err := untilQuiet(t.Context(), w.pools, nil, "", time.Minute)
	require.NoError(t, err)
	require.True(t, quiet)
}

func TestTheWaitIsGivenUpWhenNothingMoves(t *testing.T) {
	w := newWorld(t)
	w.reset()
	w.exec("order", "UPDATE troupe.sagas SET status = 'running' WHERE key = 'o-parked'")
	w.exec("inventory", "INSERT INTO troupe.outbox (topic, type) VALUES ('order.inventory.events', 'T')")
	w.exec("payment", `INSERT INTO troupe.held (consumer_group, topic_id, partition, "offset", topic, hold_key, headers, message_time, max_attempts)
		VALUES ('g', gen_random_uuid(), 0, 0, 'order.payment.commands', '', '', now(), 8)`)
	ended, err := untilEnded(t.Context(), w.pools["order"], countsSQL[demo.Orchestration], 4, func() int { return 4 }, 10*time.Millisecond, silent())
	require.NoError(t, err)
	require.False(t, ended)
	quiet, err := untilQuiet(t.Context(), w.pools, nil, "", 10*time.Millisecond)
	require.NoError(t, err)
	require.False(t, quiet)
	require.Equal(t, `  orders: 1 × shipping_exhausted (running)
  payment held: 1 × order.payment.commands: behind its key
  inventory outbox: 1 × order.inventory.events, pending
  shipping dead letters: 1 × troupe.order.ShipOrder: no driver
`, whereStuck(t.Context(), w.pools))
}

func TestTheTimeLimitStartsAgainAtEveryChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		done, err := untilDone(t.Context(), time.Second, time.Minute, func() (any, bool, error) {
			return min(time.Since(began), time.Hour), false, nil
		})
		require.NoError(t, err)
		require.False(t, done)
		require.Greater(t, time.Since(began), time.Hour+time.Minute)
	})
}
