package relay_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

func TestAPausedRelayReadsNothingAndKeepsItsLease(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := s.config()
	looked := make(chan struct{}, 100)
	cfg.Hooks.Claimed = func(int) { looked <- struct{}{} }
	r := s.start(cfg)
	waitRole(t, r, relay.Active)
	s.insert(s.topic, "a", "1")
	<-looked
	s.waitEmpty()

	require.Zero(t, r.Status().PausedSince)
	r.Pause()
	r.Pause()
	require.NotZero(t, r.Status().PausedSince)
	// The round that was under way at Pause may read once more; this row shows its end.
	s.insert(s.topic, "a", "2")
	standby := s.start(s.config())
	waitRole(t, standby, relay.Standby)
	term := r.Status().Term
	expires := func() int { return s.count("SELECT extract(epoch FROM expires_at)::bigint FROM troupe.relay_leases") }
	renewed := func() {
		before := expires()
		testkit.Wait(t, "the lease is renewed", func() (bool, error) { return expires() > before+2, nil })
	}
	renewed()
	s.insert(s.topic, "a", "3")
	renewed()
	require.Equal(t, relay.Active, r.Status().Role)
	require.Positive(t, s.count("SELECT count(*) FROM troupe.outbox"))

	r.Resume()
	r.Resume()
	s.waitEmpty()
	require.Equal(t, term, r.Status().Term, "no standby took over meanwhile")
	require.Zero(t, r.Status().PausedSince)
}

func TestAPausedRelayStopsWhenAsked(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	r := s.start(s.config())
	waitRole(t, r, relay.Active)
	r.Pause()
	require.NoError(t, r.stop())
}

func ExampleRelay_Pause() {
	maintain := func(_ context.Context, r *relay.Relay, work func()) {
		r.Pause()
		defer r.Resume()
		work() // no row is published meanwhile; the lease is kept
	}
	_ = maintain
	// Output:
}

const pauseHere = `WITH it AS (UPDATE troupe.relay_leases SET paused_at = clock_timestamp(), paused_by = 'ann', paused_why = 'ticket 7' WHERE shard = 0 RETURNING shard)
	SELECT pg_logical_emit_message(true, 'troupe.pause', '') FROM it`

const resumeHere = "UPDATE troupe.relay_leases SET paused_at = NULL, paused_by = NULL, paused_why = NULL WHERE shard = 0"

// A pause in the database applies to all relays, also to relays that start later. A relay that streams gets it from the log:
// its next renewal would be 20 s away.
func TestAPauseInTheDatabaseIsHeededByAllRelays(t *testing.T) {
	t.Parallel()
	for _, source := range []relay.Source{relay.Poll, relay.WAL} {
		t.Run(string(source), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			config := func() relay.Config {
				cfg := s.config()
				cfg.Source, cfg.Delivery, cfg.Lease = source, relay.AtLeastOnce, 9*time.Second
				return cfg
			}
			r := s.start(config())
			s.insert(s.topic, "a", "1")
			testkit.Wait(t, "the first row", func() (bool, error) { return r.Status().Published == 1, nil })
			s.exec(pauseHere)
			paused := func(r running) func() (bool, error) {
				return func() (bool, error) { return r.Status().StoredPause != nil, nil }
			}
			testkit.Wait(t, "the pause to take effect", paused(r))
			require.Equal(t, "ann", r.Status().StoredPause.Actor)
			require.Zero(t, r.Status().PausedSince, "that one is of the process")
			// The round that was under way may read once more; this row shows its end.
			s.insert(s.topic, "a", "2")
			require.NoError(t, r.stop())

			heir := s.start(config())
			testkit.Wait(t, "the pause to take effect at the successor", paused(heir))
			waitRole(t, heir, relay.Active)
			s.insert(s.topic, "a", "3")
			heir.Resume() // which does not end the pause in the database
			require.NotNil(t, heir.Status().StoredPause)
			require.Zero(t, heir.Status().Published)

			s.exec(resumeHere)
			testkit.Wait(t, "the rows that waited", func() (bool, error) { return heir.Status().StoredPause == nil && heir.Status().Published >= 1, nil })
		})
	}
}

func TestARelayTellsHowItsSlotStoodAndWhyItReadsFromThere(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := s.config()
	cfg.Source, cfg.Delivery = relay.WAL, relay.AtLeastOnce
	r := s.start(cfg)
	waitRole(t, r, relay.Active)
	testkit.Wait(t, "a sample of the slot", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.relay_slot_samples WHERE shard = 0 AND slot <> '' AND retained >= 0") > 0, nil
	})
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.relay_leases WHERE source = 'wal' AND source_why = 'by configuration'"))
	require.NoError(t, r.stop())
}

// A paused relay keeps its slot in use when its connection is cut: an idle slot would let a standby take over, and the server may
// invalidate it.
func TestAPausedRelayStreamsAgainWhenItsConnectionWasCut(t *testing.T) {
	t.Parallel()
	needsLog(t)
	for _, stored := range []bool{false, true} {
		t.Run(map[bool]string{false: "in the process", true: "in the database"}[stored], func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			cfg := s.config()
			cfg.Source = relay.WAL
			r := s.start(cfg)
			s.waitStream()
			if stored {
				s.exec(pauseHere)
				testkit.Wait(t, "the pause to take effect", func() (bool, error) { return r.Status().StoredPause != nil, nil })
			} else {
				r.Pause()
			}
			s.insert(s.topic, "k", "0")
			for n := range 2 { // at the first cut the relay may not wait yet
				var cut int
				testkit.Wait(t, "a stream to cut", func() (bool, error) {
					err := s.pool.QueryRow(t.Context(), `SELECT active_pid FROM pg_replication_slots
						WHERE database = current_database() AND pg_terminate_backend(active_pid)`).Scan(&cut)
					return err == nil, err
				})
				testkit.Wait(t, "another stream", func() (bool, error) {
					return s.count("SELECT count(*) FROM pg_replication_slots WHERE database = current_database() AND active_pid <> $1", cut) == 1, nil
				})
				if n == 0 {
					s.insert(s.topic, "k", "1")
				}
			}
			require.LessOrEqual(t, r.Status().Published, int64(1), "the round that was under way may read once more")
			if stored {
				s.exec(resumeHere)
			} else {
				r.Resume()
			}
			require.Equal(t, []string{"0", "1"}, values(s.gather(2, s.topic)))
			require.EqualValues(t, 1, r.Status().Term)
		})
	}
}

// A relay that is stopped finishes the transaction that it has begun to publish, but not during a pause: the next relay begins it again.
func TestAPausedRelayThatIsStoppedPublishesNothing(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s := newStage(t)
	cfg := s.config()
	cfg.Source, cfg.Delivery = relay.WAL, relay.AtLeastOnce
	var r running
	started := make(chan struct{})
	cfg.Hooks.Acked = func(int, time.Duration) {
		<-started
		r.Pause()
	}
	r = s.start(cfg)
	close(started)
	s.waitStream()
	committed := s.fill(s.topic, 10, 1000) // one transaction, in several windows
	testkit.Wait(t, "a pause", func() (bool, error) { return !r.Status().PausedSince.IsZero(), nil })
	require.NoError(t, r.stop())
	require.LessOrEqual(t, r.Status().Published, int64(2000), "the rows of one window")

	cfg.Hooks.Acked = nil
	s.start(cfg)
	judge(s.gather(total(committed), s.topic), committed).requireSound(t)
}

// Under exactly-once the current Kafka transaction ends first, also while a backlog has rows for the next one at once.
func TestAPauseEndsTheKafkaTransactionAndBeginsNoOther(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := s.exactly()
	first := s.startStreaming(cfg)
	require.NoError(t, first.stop())
	committed := make(map[string]int)
	for n := range 40 { // transactions
		s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload)
			SELECT $1, 'k' || k, 'Thing', convert_to(n::text, 'UTF8') FROM generate_series($2::int, $2 + 99) AS n, generate_series(1, 10) AS k ORDER BY n, k`, s.topic, 100*n)
	}
	for k := range 10 {
		committed["k"+strconv.Itoa(k+1)] = 4000
	}
	cfg.Transactions = 5 * time.Millisecond
	var r running
	started := make(chan struct{})
	var once sync.Once
	cfg.Hooks.Deleted = func(int) {
		<-started
		once.Do(r.Pause)
	}
	r = s.start(cfg)
	close(started)
	testkit.Wait(t, "the checkpoint of the last transaction to be stored", func() (bool, error) {
		var stored string
		err := s.pool.QueryRow(t.Context(), "SELECT lsn::text FROM troupe.relay_state").Scan(&stored)
		return !r.Status().PausedSince.IsZero() && stored == r.Status().Checkpoint, err
	})
	require.LessOrEqual(t, r.Status().Published, int64(10_000), "of 40,000 rows")
	r.Resume()
	s.settleExactly(r, committed)
}

// A pause belongs to the name of a mapped table. The steps of docs/from-debezium.md give it to the new name before its relay starts.
func TestAMappedTableThatIsRenamedStaysPaused(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	s.exec(debeziumTable)
	topic := s.eventTopic("order")
	cfg := s.mapped("public.outbox", s.routed(nil))
	cfg.Slot, cfg.Publication, cfg.Lease = "events", "mapped", time.Second
	r := s.start(cfg)
	s.waitTable(r)
	require.NoError(t, r.stop())
	s.insertEvent("order", "k", "1") // only the log has it
	s.exec("ALTER TABLE public.outbox RENAME TO events; INSERT INTO troupe.mapped_tables (name) VALUES ('public.events')")
	d := desk.Desk{DB: s.pool, Table: desk.Table{Name: "public.events"}}
	by := admin.Actor{Name: "ann", Reason: "the table is renamed"}
	require.NoError(t, d.Pause(t.Context(), by))
	cfg.Table = "public.events"
	r = s.start(cfg)
	testkit.Wait(t, "the pause", func() (bool, error) { return r.Status().StoredPause != nil && r.Status().Role == relay.Active, nil })
	require.Zero(t, r.Status().Published)
	require.NoError(t, d.Resume(t.Context(), by))
	require.Equal(t, []string{"1"}, values(s.gatherEvents(1, topic)))
}
