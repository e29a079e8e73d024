package relay_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
)

// Rows that are refused are due again before all of them were tried, and more are due than a claim holds. New rows of other
// topics are published all the same, under poll, from the log, and from the log of a table with a mapping.
func TestRowsThatAreRefusedAgainAndAgainLeaveRoomForNewOnes(t *testing.T) {
	t.Parallel()
	const refused, others = 60, 40
	again := func(cfg relay.Config) relay.Config {
		cfg.Batch, cfg.UnknownTopic = 10, 10*time.Hour
		cfg.Retry = retry.Policy{Initial: time.Nanosecond, Cap: time.Nanosecond, Attempts: 8}
		return cfg
	}
	for _, batch := range []int{1, 10} {
		t.Run("poll in batches of "+strconv.Itoa(batch), func(t *testing.T) {
			t.Parallel()
			s, _ := newServer(t, nil)
			for n := range refused {
				s.insert(s.flow+".none.commands", "k"+strconv.Itoa(n), "refused")
			}
			cfg := again(s.config())
			cfg.Source, cfg.Batch = relay.Poll, batch
			s.start(cfg)
			s.waitTried("troupe.outbox_trouble", refused)
			for n := range others {
				s.insert(s.topic, "free", strconv.Itoa(n))
			}
			require.Len(t, s.gather(others, s.topic), others)
			s.waitTried("troupe.outbox_trouble", refused)
		})
	}
	t.Run("wal", func(t *testing.T) {
		t.Parallel()
		s, _ := newServer(t, nil)
		s.start(again(s.wal()))
		s.waitStream()
		for n := range refused {
			s.insert(s.flow+".none.commands", "k"+strconv.Itoa(n), "refused")
		}
		s.waitTried("troupe.outbox_trouble", refused)
		for n := range others {
			s.insert(s.topic, "free", strconv.Itoa(n))
		}
		require.GreaterOrEqual(t, len(s.gather(others, s.topic)), others)
	})
	t.Run("a table with a mapping", func(t *testing.T) {
		t.Parallel()
		s, _ := newServer(t, nil)
		s.exec(debeziumTable)
		topic := s.eventTopic("free")
		r := s.start(again(s.mapped("public.outbox", s.routed(nil))))
		s.waitTable(r)
		for n := range refused {
			s.insertEvent("none", "k"+strconv.Itoa(n), `{}`)
		}
		s.waitTried("troupe.mapped_trouble", refused)
		for n := range others {
			s.insertEvent("free", "free", `{"n": `+strconv.Itoa(n)+`}`)
		}
		require.GreaterOrEqual(t, len(s.gatherEvents(others, topic)), others)
	})
}

// waitTried waits until each of n rows in trouble was tried more than once.
func (s *stage) waitTried(table string, n int) {
	s.t.Helper()
	testkit.Wait(s.t, "each refused row to be tried again", func() (bool, error) {
		return s.count("SELECT count(*) FROM "+table+" WHERE status = 'retrying' AND attempts > 1") == n, nil
	})
}
