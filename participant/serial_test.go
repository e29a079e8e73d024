package participant_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
)

// TestBatchesThatLockInDifferentOrdersTakeTurns checks that batches run one at a time after a deadlock: Postgres looks for one
// after a second, so each one costs that much, and otherwise the next batches would deadlock again.
func TestBatchesThatLockInDifferentOrdersTakeTurns(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	_, err := s.pool.Exec(t.Context(), "CREATE TABLE shared (id int PRIMARY KEY, n int NOT NULL); INSERT INTO shared VALUES (1, 0), (2, 0)")
	require.NoError(t, err)

	p := s.new(func(c *participant.Config) { c.Batch, c.Concurrency = 10, 4 })
	require.False(t, p.RunsSerially())
	var mu sync.Mutex
	waves := make(map[int]*meeting)
	var inTurn atomic.Int64
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if _, err := tx.Exec(ctx, "UPDATE shared SET n = n + 1 WHERE id = $1", c.Body.N); err != nil {
			return participant.Outcome{}, err
		}
		var wave, place int
		if _, err := fmt.Sscanf(c.Body.Fail, "%d/%d", &wave, &place); err != nil {
			return participant.Outcome{}, err
		}
		if place == 0 && !p.RunsSerially() { // each partition's first has its row now, and its second wants the other's
			mu.Lock()
			if waves[wave] == nil {
				waves[wave] = &meeting{both: make(chan struct{})}
			}
			m := waves[wave]
			mu.Unlock()
			if err := m.arrive(ctx, string(c.Message.Key)); err != nil {
				return participant.Outcome{}, err
			}
		}
		var has bool
		err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid() AND classid = $1)",
			participant.SerialClass).Scan(&has)
		if has {
			inTurn.Add(1)
		}
		return participant.Succeed(Counted{N: c.Body.N}), err
	})

	keys := twoKeysEach(t, s)
	sent := 0
	wave := func() {
		sent++
		var all []envelope.Message
		for partition, own := range keys {
			for place, key := range own {
				all = append(all, s.command(key, Count{N: (partition+place)%2 + 1, Fail: fmt.Sprintf("%d/%d", sent, place)}))
			}
		}
		s.send(all...)
	}
	done := func() bool { return s.count("SELECT sum(n)::int FROM shared") == 4*sent }
	wave()
	s.start(p)
	waitFor(t, "a deadlock", func() bool {
		if done() && !p.RunsSerially() { // they came one by one
			wave()
		}
		return p.RunsSerially()
	})
	waitFor(t, "a batch that has its turn", func() bool {
		if done() && inTurn.Load() == 0 {
			wave()
		}
		return inTurn.Load() > 0
	})
	waitFor(t, "all messages to take effect once", done)
	require.Equal(t, 0, s.count("SELECT count(*) FROM troupe.dead_letters"))
}

// meeting lets two runs wait for each other.
type meeting struct {
	mu    sync.Mutex
	first string
	both  chan struct{}
	once  sync.Once
}

func (m *meeting) arrive(ctx context.Context, who string) error {
	m.mu.Lock()
	if m.first == "" {
		m.first = who
	}
	if m.first != who {
		m.once.Do(func() { close(m.both) })
	}
	m.mu.Unlock()
	select {
	case <-m.both:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// twoKeysEach returns two keys for each of the commands topic's two partitions, in order.
func twoKeysEach(t *testing.T, s *stage) [2][]string {
	t.Helper()
	pick := kgo.StickyKeyPartitioner(nil).ForTopic("")
	var keys [2][]string
	for n := 100; len(keys[0]) < 2 || len(keys[1]) < 2; n++ {
		key := fmt.Sprintf("k-%d", n)
		if at := pick.Partition(&kgo.Record{Key: []byte(key)}, 2); len(keys[at]) < 2 {
			keys[at] = append(keys[at], key)
		}
	}
	return keys
}
