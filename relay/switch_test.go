package relay_test

import (
	"cmp"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// From the table to the log and back, repeatedly, on a live outbox: no row is lost, and repeats have the same id.
func TestChangingTheSourceUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	loaded := make(chan map[string]int)
	go func() { loaded <- s.hardLoad(ctx, 4) }()
	for n, source := range []relay.Source{relay.Poll, relay.WAL, relay.Poll, relay.WAL, relay.Poll, relay.WAL} {
		cfg := s.config()
		cfg.Source = source
		r := s.start(cfg)
		if source == relay.WAL {
			s.waitStream()
		}
		from := r.Status().Deleted
		testkit.Wait(t, "rows from "+string(source), func() (bool, error) { return r.Status().Deleted > from+200, nil })
		if n == 5 {
			cancel()
			committed := <-loaded
			v := judge(s.gather(total(committed), s.topic), committed)
			t.Logf("%d rows", total(committed))
			v.requireSound(t)
		}
		require.NoError(t, r.stop())
		if source == relay.Poll {
			require.Zero(t, s.count("SELECT count(*) FROM pg_replication_slots"), "no slot is left")
		}
	}
}

// For a copy of the database in another cluster, the first cluster's snapshot is meaningless: its transactions have other
// numbers.
func TestACopyInAnotherClusterLosesNothing(t *testing.T) {
	t.Parallel()
	for _, source := range []relay.Source{relay.WAL, relay.Poll} {
		t.Run(string(source), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			// As if the dump was restored: the snapshot sees all of this cluster's transactions, for hours to come.
			s.exec(`INSERT INTO troupe.relay_state (slot, source, system_id, timeline, published, lsn)
				VALUES ('troupe_' || current_database(), 'wal', '7000000000000000000', 1, '4000000000:4000000000:', '0/1')`)
			committed := s.fill(s.topic, 10, 20)
			cfg := s.config()
			cfg.Source = source
			r := s.start(cfg)
			judge(s.gather(200, s.topic), committed).requireSound(t)
			if source == relay.WAL {
				s.waitStream()
			}
			for key := range committed {
				s.insert(s.topic, key, "20")
				committed[key]++
			}
			judge(s.gather(210, s.topic), committed).requireSound(t)
			require.NoError(t, r.stop())
			require.NoError(t, s.start(cfg).stop(), "and the stored state is of this cluster")
			require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.relay_state WHERE system_id <> '7000000000000000000'"))
		})
	}
}

// A restored dump has transaction ids of its former cluster, which this one may not have assigned yet.
func TestRestoredRowsOfAnOlderClusterArePublishedInOrder(t *testing.T) {
	t.Parallel()
	for _, source := range []relay.Source{relay.WAL, relay.Poll} {
		t.Run(string(source), func(t *testing.T) {
			t.Parallel()
			s, _ := newServer(t, nil)
			committed := s.fill(s.topic, 10, 50)
			s.exec("UPDATE troupe.outbox SET xid = '4000000000' WHERE position % 3 > 0")
			sending, send := context.WithCancel(t.Context())
			defer send()
			cfg := s.config()
			cfg.Source, cfg.Batch = source, 20
			cfg.Hooks.BeforeSend = func(int) { <-sending.Done() }
			r := s.start(cfg)
			if source == relay.WAL {
				testkit.Wait(t, "a slot", func() (bool, error) {
					return s.count("SELECT count(*) FROM pg_replication_slots WHERE confirmed_flush_lsn IS NOT NULL") == 1, nil
				})
			}
			send()
			judge(s.gather(total(committed), s.topic), committed).requireSound(t)
			if source == relay.Poll {
				return
			}
			testkit.Wait(t, "all rows to be done", func() (bool, error) {
				return s.count("SELECT count(*) FROM troupe.outbox_status WHERE status <> 'done'") == 0, nil
			})
			for key := range committed {
				s.insert(s.topic, key, "50")
				committed[key]++
			}
			judge(s.gather(total(committed), s.topic), committed).requireSound(t)
			require.NoError(t, r.stop())
		})
	}
}

// Creating a slot waits for other transactions, however long they last. Meanwhile the table is polled.
func TestALongTransactionHoldsNobodyUpAtTheFirstStart(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'late', 'Thing', '0')`, s.topic)
	require.NoError(t, err)
	cfg := s.wal()
	r := s.start(cfg)
	committed := s.fill(s.topic, 10, 20)
	judge(s.gather(200, s.topic), committed).requireSound(t)
	require.NoError(t, r.stop(), "a stop does not wait for it")

	second := s.start(cfg)
	s.insert(s.topic, "k1", "20")
	committed["k1"]++
	judge(s.gather(201, s.topic), committed).requireSound(t)
	require.NoError(t, tx.Commit(t.Context()))
	committed["late"] = 1
	s.waitStream()
	s.insert(s.topic, "late", "1")
	committed["late"]++
	v := judge(s.gather(203, s.topic), committed)
	v.requireSound(t)
	v.requireOnce(t, cmp.Or(r.Status().LastError, second.Status().LastError))
}
