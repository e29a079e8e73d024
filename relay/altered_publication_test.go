package relay_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// While the publication is altered, the log does not have the rows that are inserted. They are published from the table once
// the publication has them again, before later rows of their key, and the relay is not ready until then.
func TestRowsThatAnAlteredPublicationLeftOutArePublished(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	cfg := s.wal()
	cfg.Lease = 5 * time.Second // without progress the relay stays ready for as long
	r := s.start(cfg)
	s.waitStream()
	s.insert(s.topic, "k", "0")
	want := []string{"0"}
	for _, c := range []struct{ off, on, obstacle string }{
		{"SET (publish = 'update')", "SET (publish = 'insert')", "does not publish inserts"},
		{"SET TABLE troupe.outbox WHERE (position < 0)", "SET TABLE troupe.outbox", "has a row filter"},
		{"DROP TABLE troupe.outbox", "ADD TABLE troupe.outbox", "does not hold"},
	} {
		require.Equal(t, want, values(s.gather(len(want), s.topic)))
		s.waitProven()
		s.exec("ALTER PUBLICATION troupe_outbox " + c.off)
		want = append(want, strings.Fields(c.off)[1]+" 1", strings.Fields(c.off)[1]+" 2")
		s.insert(s.topic, "k", want[len(want)-2])
		testkit.Wait(t, "unreadiness", func() (bool, error) {
			err := r.Ready()
			return err != nil && strings.Contains(err.Error(), c.obstacle), nil
		})
		s.exec("ALTER PUBLICATION troupe_outbox " + c.on)
		s.insert(s.topic, "k", want[len(want)-1])
		s.waitStream()
	}
	require.Equal(t, want, values(s.gather(len(want), s.topic)))
	testkit.Wait(t, "readiness", func() (bool, error) { return r.Ready() == nil, r.Ready() })
}

// A change that is undone before the relay notices it leaves rows out too.
func TestRowsThatABriefAlterationLeftOutArePublishedInOrder(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	s.start(s.wal())
	s.waitStream()
	s.insert(s.topic, "k", "0")
	s.gather(1, s.topic)
	s.waitProven()
	s.exec("ALTER PUBLICATION troupe_outbox SET (publish = 'update')")
	s.insert(s.topic, "k", "1")
	s.exec("ALTER PUBLICATION troupe_outbox SET (publish = 'insert')")
	s.insert(s.topic, "k", "2")
	require.Equal(t, []string{"0", "1", "2"}, values(s.gather(3, s.topic)))
}

// Rows of a table with a mapping may be in the log alone. When its publication was altered, the relay is not ready until an
// operator either drops the slot, so that the rows of the table are published, or states that no row was inserted meanwhile.
func TestAPersonDecidesOnAMappedTableWhosePublicationWasAltered(t *testing.T) {
	t.Parallel()
	needsLog(t)
	for _, c := range []struct {
		name, decision string
		missed         bool // a row is inserted while the publication is altered
		want           []string
	}{
		{"the slot is dropped", "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots", true, []string{"0", "1", "2"}},
		{"no row is missing", "UPDATE troupe.mapped_tables SET publication = NULL WHERE name = 'public.outbox'", false, []string{"0", "2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, _ := newServer(t, nil)
			s.exec(debeziumTable)
			topic := s.eventTopic("order")
			cfg := s.mapped("public.outbox", s.routed(nil))
			cfg.Lease = 5 * time.Second
			r := s.start(cfg)
			s.waitTable(r)
			consumer := testkit.Consume(t, s.brokers, topic)
			insert := func(payload string) {
				s.exec("INSERT INTO public.outbox VALUES (troupe.uuidv7(), 'order', 'a', 'T', $1::jsonb)", payload)
			}
			insert("0")
			consumer.WaitN(1)
			testkit.Wait(t, "a stored checkpoint", func() (bool, error) {
				return s.count("SELECT count(*) FROM troupe.mapped_tables WHERE publication IS NOT NULL AND sweep IS NULL") == 1, nil
			})
			var publication string
			require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT pubname FROM pg_publication WHERE pubname <> 'troupe_outbox'").Scan(&publication))
			s.exec("ALTER PUBLICATION " + publication + " SET (publish = 'update')")
			if c.missed {
				insert("1")
			}
			s.exec("ALTER PUBLICATION " + publication + " SET (publish = 'insert')")
			insert("2")
			testkit.Wait(t, "unreadiness that says what to do", func() (bool, error) {
				err := r.Ready()
				return err != nil && strings.Contains(err.Error(), "drop slot") && strings.Contains(err.Error(), "UPDATE troupe.mapped_tables"), nil
			})
			require.Equal(t, []string{"0"}, values(consumer.Records()), "nothing overtakes a row that may be missing")
			testkit.Wait(t, "the decision", func() (bool, error) { // the relay may hold the slot for a moment
				_, err := s.pool.Exec(t.Context(), c.decision)
				return err == nil, err
			})
			var got []string
			testkit.Wait(t, "the rows", func() (bool, error) {
				got = nil
				for _, value := range values(consumer.Records()) {
					if !slices.Contains(got, value) { // rows of the table may be published again
						got = append(got, value)
					}
				}
				return len(got) == len(c.want), nil
			})
			require.Equal(t, c.want, got)
			testkit.Wait(t, "readiness", func() (bool, error) { return r.Ready() == nil, r.Ready() })
		})
	}
}

// A publication may contain the table through its schema (Postgres 15 and newer).
func TestRowsThatAnAlteredPublicationOfTheSchemaLeftOutArePublishedInOrder(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	if s.count("SELECT current_setting('server_version_num')::int") < 150000 {
		return
	}
	s.exec("CREATE PUBLICATION everything FOR TABLES IN SCHEMA troupe WITH (publish = 'insert', publish_via_partition_root = true)")
	cfg := s.wal()
	cfg.Publication = "everything"
	s.start(cfg)
	s.waitStream()
	s.insert(s.topic, "k", "0")
	s.gather(1, s.topic)
	s.waitProven()
	s.exec("ALTER PUBLICATION everything DROP TABLES IN SCHEMA troupe")
	s.insert(s.topic, "k", "1")
	s.exec("ALTER PUBLICATION everything ADD TABLES IN SCHEMA troupe")
	s.insert(s.topic, "k", "2")
	require.Equal(t, []string{"0", "1", "2"}, values(s.gather(3, s.topic)))
}

// Tables of events are rotated this way: another table takes over the name, and the publication does not contain it.
func TestAMappedTableWhoseNameIsAnothersIsNoticed(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	s.exec(debeziumTable)
	cfg := s.mapped("public.outbox", s.routed(nil))
	cfg.Lease = 5 * time.Second // without progress the relay stays ready for as long
	r := s.start(cfg)
	s.waitTable(r)
	testkit.Wait(t, "readiness", func() (bool, error) { return r.Ready() == nil, r.Ready() })
	s.exec("ALTER TABLE public.outbox RENAME TO outbox_2026; CREATE TABLE public.outbox (LIKE public.outbox_2026 INCLUDING ALL)")
	testkit.Wait(t, "unreadiness", func() (bool, error) {
		err := r.Ready()
		return err != nil && strings.Contains(err.Error(), "does not hold public.outbox"), nil
	})
}
