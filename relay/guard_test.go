package relay_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// noise writes megabytes of log that do not belong to the outbox.
func (s *stage) noise(megabytes int) {
	s.t.Helper()
	s.exec("SELECT count(pg_logical_emit_message(false, 'noise', repeat('x', 1000000))) FROM generate_series(1, $1)", megabytes)
}

// While the broker is unavailable the slot makes the server keep its log. The relay warns first, then is not ready, and at
// the limit it drops the slot before the disk is full. The table has all the rows.
func TestASlotThatHoldsTooMuchIsDropped(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	wire, logs := &wire{}, &lines{}
	cfg := s.wal()
	cfg.Kafka = []kgo.Opt{kgo.Dialer(wire.dial)}
	cfg.Log = logs.logger(t)
	cfg.SlotWarn, cfg.SlotUnready, cfg.SlotLimit = 2<<20, 4<<20, 64<<20
	r := s.start(cfg)
	s.waitStream()
	committed := s.fill(s.topic, 10, 20)
	s.waitProven()
	wire.cut()
	for key := range committed {
		s.insert(s.topic, key, "20")
		committed[key]++
	}
	testkit.Wait(t, "rows in flight", func() (bool, error) { return r.Status().InFlight > 0, nil })
	s.noise(10)
	testkit.Wait(t, "readiness to say so", func() (bool, error) {
		err := r.Ready()
		return err != nil && strings.Contains(err.Error(), "makes the server keep"), nil
	})
	testkit.Wait(t, "the log to say so", func() (bool, error) { // just after the status
		return strings.Contains(logs.String(), "slot size: failed"), nil
	})
	status := r.Status()
	require.Greater(t, status.Slot.RetainedBytes, int64(4<<20))
	require.Equal(t, slotName, status.Slot.Name)
	require.True(t, status.Slot.Active)
	require.Zero(t, status.Slot.InactiveSince)
	require.Equal(t, relay.WAL, status.Source)
	require.Empty(t, status.GivenUp)

	s.noise(80)
	testkit.Wait(t, "the slot to go", func() (bool, error) {
		return s.count("SELECT count(*) FROM pg_replication_slots") == 0, nil
	})
	require.Contains(t, r.Status().GivenUp, "the limit is 64 MB")
	require.Contains(t, logs.String(), "slot is dropped rather than fill the server's disk")

	wire.mend()
	testkit.Wait(t, "the poll", func() (bool, error) { return r.Status().Source == relay.Poll, nil })
	s.insert(s.topic, "k1", "21")
	committed["k1"]++
	judge(s.gather(total(committed), s.topic), committed).requireSound(t)
	require.Zero(t, s.count("SELECT count(*) FROM pg_replication_slots"))
	testkit.Wait(t, "readiness", func() (bool, error) { return r.Ready() == nil, nil })
	require.NoError(t, r.stop())

	r = s.start(cfg) // started again, it streams again
	s.waitStream()
	s.insert(s.topic, "k1", "22")
	committed["k1"]++
	judge(s.gather(total(committed), s.topic), committed).requireSound(t)
	require.Empty(t, r.Status().GivenUp)
}

// The limit also applies while a slot is being created, which waits for other transactions.
func TestASlotThatCannotBeMadeIsGivenUpAtTheLimit(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT pg_current_xact_id()")
	require.NoError(t, err)
	cfg := s.wal()
	cfg.SlotWarn, cfg.SlotLimit = 1<<20, 8<<20
	r := s.start(cfg)
	testkit.Wait(t, "a slot in the making", func() (bool, error) {
		return s.count("SELECT count(*) FROM pg_replication_slots WHERE restart_lsn IS NOT NULL") == 1, nil
	})
	s.noise(20)
	testkit.Wait(t, "the slot to go", func() (bool, error) {
		return r.Status().GivenUp != "" && s.count("SELECT count(*) FROM pg_replication_slots") == 0, nil
	})
	committed := s.fill(s.topic, 10, 20)
	judge(s.gather(200, s.topic), committed).requireSound(t)
	require.NoError(t, r.stop())
	require.NoError(t, tx.Rollback(t.Context()))
}

// The slot of an outbox without rows, on a server that writes much, releases the log all the same.
func TestAQuietOutboxOnABusyServerHoldsNoLog(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	s.start(s.wal())
	s.waitStream()
	s.exec("CREATE TABLE public.busy (n int, pad text)")
	s.noise(20)
	var before, confirmed string
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT pg_current_wal_lsn()::text").Scan(&before))
	testkit.Wait(t, "the log before this moment to be let go", func() (bool, error) {
		var now string
		err := s.pool.QueryRow(t.Context(), "SELECT confirmed_flush_lsn::text FROM pg_replication_slots").Scan(&now)
		if err != nil {
			return false, err
		}
		if now != confirmed {
			// So that the next heartbeat, in 15 s, confirms more, however slow this loop is, and so that the server's list of
			// running transactions comes before it: only past such a list does a slot advance.
			confirmed = now
			s.noise(20)
			s.exec("CHECKPOINT")
		}
		s.exec("INSERT INTO public.busy SELECT n, repeat('x', 1000) FROM generate_series(1, 100) AS n")
		return s.count("SELECT count(*) FROM pg_replication_slots WHERE restart_lsn > $1::pg_lsn AND confirmed_flush_lsn > $1::pg_lsn", before) == 1, nil
	})
}

// A heartbeat each 15 s, the checkpoint stored each minute, the lease renewed each 20 s, the slot read each 30 s: no more
// than 12 statements a minute.
func TestAnIdleRelayThatStreamsNeedsFewStatements(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	count := &statements{}
	config := s.pool.Config()
	config.ConnConfig.Tracer = count
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	cfg := s.wal()
	cfg.Pool, cfg.Interval, cfg.Lease = pool, time.Second, 5*time.Second
	r := s.start(cfg)
	s.waitStream()
	testkit.Wait(t, "the beginning to be over", func() (bool, error) {
		status := r.Status()
		return status.Slot != nil && status.Slot.WALStatus != "" && status.Headroom > 0, nil
	})
	for {
		broke, before, began := r.Status().LastErrorAt, count.n.Load(), time.Now()
		testkit.Wait(t, "half a minute", func() (bool, error) { return time.Since(began) >= 30*time.Second, nil })
		n, passed := count.n.Load()-before, time.Since(began)
		t.Logf("%d statements in %s", n, passed.Round(time.Second))
		if !r.Status().LastErrorAt.Equal(broke) {
			t.Logf("not idle, it had to restart: %s", r.Status().LastError)
			continue
		}
		require.LessOrEqual(t, n, int64(passed/(5*time.Second)))
		break
	}
	require.NoError(t, r.Ready())
}

// Rows that were published since the last stored snapshot are still in the table that is polled then.
func TestExactlyOnceReportsThatASlotLimitRepeatsRows(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	cfg := s.exactly()
	cfg.SlotWarn, cfg.SlotLimit = 1<<20, 24<<20
	r := s.startStreaming(cfg)
	before := r.Status().RepeatsAt
	open, err := s.pool.Begin(t.Context()) // makes the slot keep its log
	require.NoError(t, err)
	defer func() { _ = open.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = open.Exec(t.Context(), "CREATE TABLE others (n int)")
	require.NoError(t, err)
	s.noise(40)
	testkit.Wait(t, "the status to report repeats", func() (bool, error) {
		status := r.Status()
		return status.GivenUp != "" && status.RepeatsAt.After(before) && strings.Contains(status.Repeats, status.GivenUp[:len("the slot was dropped")]), nil
	})
	require.Equal(t, relay.Poll, r.Status().Source)
}
