package relay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// parkedThenGone parks row 0 of a mapped table and lets row 1 wait behind it. Then it stops the relay and takes the table away.
func parkedThenGone(t *testing.T, takeAway string) (s *stage, cfg relay.Config, topic string) {
	t.Helper()
	s, _ = newServer(t, nil)
	s.exec(debeziumTable)
	topic = s.flow + ".late.events"
	cfg = s.mapped("public.outbox", s.routed(nil))
	cfg.Slot, cfg.Publication, cfg.UnknownTopic = "troupe_events", "troupe_events", 1
	r := s.start(cfg)
	s.waitTable(r)
	s.insertEvent("late", "k", "0")
	s.insertEvent("late", "k", "1")
	testkit.Wait(t, "a parked row and one behind it", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.mapped_failures WHERE status = 'parked'") == 1 &&
			s.count("SELECT count(*) FROM troupe.mapped_failures WHERE status = 'waiting'") == 1, nil
	})
	require.NoError(t, r.stop())
	testkit.Wait(t, "the end of the stream", func() (bool, error) {
		return s.count("SELECT count(*) FROM pg_replication_slots WHERE active") == 0, nil
	})
	s.exec(takeAway)
	s.provision(kafka.Topic{Name: topic, Partitions: 1})
	cfg.Lease = time.Second // a relay without progress is ready for as long
	return s, cfg, topic
}

func waitUnready(t *testing.T, r running, texts ...string) {
	t.Helper()
	testkit.Wait(t, "unreadiness", func() (bool, error) {
		err := r.Ready()
		if err == nil {
			return false, nil
		}
		for _, text := range texts {
			if !strings.Contains(err.Error(), text) {
				return false, err
			}
		}
		return true, nil
	})
}

func TestTheFailedRowsOfARenamedMappedTableAreNotForgotten(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, cfg, topic := parkedThenGone(t, "ALTER TABLE public.outbox RENAME TO events")
	cfg.Table = "public.events"
	s.exec(`INSERT INTO public.events VALUES (troupe.uuidv7(), 'late', 'k', 'T', '2')`)
	logs := &lines{}
	cfg.Log = logs.logger(t)
	r := s.start(cfg)
	const remedy = "UPDATE troupe.mapped_failures SET table_name = 'public.events' WHERE table_name = 'public.outbox'"
	waitUnready(t, r, "table public.outbox does not exist", "2 of its rows are not published", "1 parked", remedy)
	require.Contains(t, r.Status().LastError, remedy)
	require.Contains(t, logs.String(), "public.outbox does not exist")
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.mapped_failures WHERE table_name = 'public.outbox'"))
	require.Empty(t, s.committed(topic), "no row of the key overtakes the parked one")

	s.exec(remedy)
	s.exec("UPDATE troupe.mapped_failures SET status = 'retrying', next_try = clock_timestamp() WHERE status = 'parked'")
	require.Equal(t, []string{"0", "1", "2"}, values(s.gatherEvents(3, topic)))
	testkit.Wait(t, "readiness", func() (bool, error) { return r.Ready() == nil, r.Ready() })
	testkit.Wait(t, "no failure", func() (bool, error) { return s.count("SELECT count(*) FROM troupe.mapped_failures") == 0, nil })
}

func TestARelayWhoseMappedTableIsGoneReportsItsFailedRows(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, cfg, topic := parkedThenGone(t, "DROP TABLE public.outbox")
	r := s.start(cfg)
	waitUnready(t, r, "table public.outbox does not exist", "2 of its rows are not published", "1 parked", "create it again")
	s.exec(debeziumTable)
	s.exec("ALTER PUBLICATION troupe_events ADD TABLE public.outbox")
	s.exec("UPDATE troupe.mapped_failures SET status = 'retrying', next_try = clock_timestamp() WHERE status = 'parked'")
	waitUnready(t, r, "was altered") // the table's log has a gap: an operator decides, as documented
	s.exec("UPDATE troupe.mapped_tables SET publication = NULL")
	require.Equal(t, []string{"0", "1"}, values(s.gatherEvents(2, topic)))
}

// A relay that has streamed its own table before cannot be the one of the missing table under another name: it continues.
func TestARelayOfAnotherMappedTableWarnsOfTheMissingOne(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, cfg, _ := parkedThenGone(t, "CREATE TABLE public.other (LIKE public.outbox INCLUDING ALL)")
	logs := &lines{}
	cfg.Table, cfg.Slot, cfg.Publication, cfg.Log = "public.other", "troupe_other", "troupe_other", logs.logger(t)
	first := s.start(cfg)
	s.waitTable(first)
	require.NoError(t, first.stop())
	require.NotContains(t, logs.String(), "does not exist")
	s.exec("DROP TABLE public.outbox")
	topic := s.eventTopic("order")
	s.exec(`INSERT INTO public.other VALUES (troupe.uuidv7(), 'order', 'k', 'T', '"other"')`)
	s.start(cfg)
	require.Equal(t, []string{`"other"`}, values(s.gatherEvents(1, topic)))
	testkit.Wait(t, "the warning", func() (bool, error) {
		return strings.Contains(logs.String(), "table public.outbox does not exist"), nil
	})
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.mapped_failures"))
}

// The records of a table that no longer exists are closed to a role that may read the table no more. The relay gives the same reason as
// with the rights of the owner.
func TestARelayWithNoMoreThanItsGrantsReportsThatItsMappedTableIsGone(t *testing.T) {
	t.Parallel()
	needsLog(t)
	for _, c := range []struct {
		takeAway string
		reasons  []string
	}{
		{"DROP TABLE public.outbox", []string{"table public.outbox does not exist", "2 of its rows are not published", "1 parked", "create it again"}},
		{"DELETE FROM troupe.mapped_failures; DROP TABLE public.outbox", []string{"table public.outbox does not exist"}},
		{"REVOKE ALL ON public.outbox FROM %s", []string{"grant it SELECT on table public.outbox"}},
		{"REVOKE UPDATE ON troupe.relay_leases FROM %s", []string{"permission denied for table relay_leases"}},
	} {
		t.Run(c.takeAway, func(t *testing.T) {
			t.Parallel()
			s, cfg, _ := parkedThenGone(t, "CREATE SCHEMA unused")
			role := grantstest.New(t, s.pool, grants.MappedRelay)
			s.exec("ALTER ROLE " + role.Name + " REPLICATION")
			s.exec("GRANT SELECT ON public.outbox TO " + role.Name)
			cfg.Pool = role.Pool()
			first := s.start(cfg)
			s.waitTable(first)
			require.NoError(t, first.stop())
			s.exec(strings.ReplaceAll(c.takeAway, "%s", role.Name))
			r := s.start(cfg)
			waitUnready(t, r, c.reasons...)
			require.Equal(t, strings.HasPrefix(c.takeAway, "REVOKE ALL"), strings.Contains(r.Status().LastError, "may not read its table"))
		})
	}
}
