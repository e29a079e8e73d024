package relay_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// The role of a relay operator may pause the relays, and write some columns of a failed row. No value in these columns stops the relay after the
// pause, or fills its memory.
func TestARelayOperatorStopsNoRelayByOddValues(t *testing.T) {
	t.Parallel()
	for _, source := range []relay.Source{relay.Poll, relay.WAL} {
		t.Run(string(source), func(t *testing.T) {
			t.Parallel()
			s, _ := newServer(t, nil)
			cfg := s.config()
			cfg.Source, cfg.Delivery = source, relay.AtLeastOnce
			operator := grantstest.New(t, s.pool, grants.RelayOperator).Pool()
			r := s.start(cfg)
			s.insert(s.flow+".late.commands", "k", "0")
			testkit.Wait(t, "the row to fail", func() (bool, error) { return s.count("SELECT count(*) FROM troupe.outbox_failures") == 1, nil })
			for _, column := range []string{"first_failed_at", "next_try"} {
				for _, at := range []string{"infinity", "-infinity", "4000-01-01 BC", "294276-01-01"} {
					_, err := operator.Exec(t.Context(), "UPDATE troupe.outbox_failures SET "+column+" = $1::text::timestamptz", at)
					require.ErrorContains(t, err, "check constraint", "%s = %s", column, at)
				}
			}
			_, err := operator.Exec(t.Context(), "UPDATE troupe.outbox_failures SET attempts = 2147483647, first_failed_at = '0001-01-01 00:00Z', next_try = '0001-01-01 00:00Z'")
			require.NoError(t, err)
			s.insert(s.topic, "good", "1")
			testkit.Consume(t, s.brokers, s.topic).WaitN(1)
			s.exec("UPDATE troupe.outbox_failures SET status = 'retrying', next_try = '0001-01-01 00:00Z', first_failed_at = '0001-01-01 00:00Z', attempts = 2147483647")
			s.insert(s.topic, "good", "2")
			testkit.Consume(t, s.brokers, s.topic).WaitN(2)

			_, err = operator.Exec(t.Context(), "UPDATE troupe.relay_leases SET paused_at = now(), paused_by = repeat('x', 100000000), paused_why = repeat('y', 100000000) WHERE shard = 0")
			require.NoError(t, err)
			testkit.Wait(t, "the pause", func() (bool, error) { return r.Status().StoredPause != nil, nil })
			pause := r.Status().StoredPause
			require.Len(t, pause.Actor, 200)
			require.Len(t, pause.Reason, 2000)
			require.WithinDuration(t, time.Now(), pause.Since, time.Hour)
			_, err = operator.Exec(t.Context(), "UPDATE troupe.relay_leases SET paused_at = NULL, paused_by = NULL, paused_why = NULL WHERE shard = 0")
			require.NoError(t, err)
			s.insert(s.topic, "good", "3")
			testkit.Consume(t, s.brokers, s.topic).WaitN(3)
		})
	}
}
