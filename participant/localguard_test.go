package participant_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
)

// TestWhoeverLostAnEntryDoesNotRunIt checks entries that another member has taken over and not begun. A run by the previous
// owner would be one that is not counted.
func TestWhoeverLostAnEntryDoesNotRunIt(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	const keys = 5
	s.writeAll(keys, 1)
	begun, may := make(chan string), make(chan struct{})
	var batch, failed int // of the one worker
	var after sync.Map    // the keys that ran when the others had been taken over
	p := s.new(func(c *participant.Config) {
		c.Batch, c.Concurrency, c.Immediate = keys, 1, -1
		c.Hooks.BeforeHandler = func(d participant.Delivery) { batch = d.Batch }
	})
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		switch {
		case failed == 0 && batch > 1: // all of them are rolled back, to run one by one
			failed++
			return participant.Outcome{}, errAsked
		case failed == 1: // alone, while the others wait for their turn
			failed++
			begun <- string(c.Message.Key)
			<-may
		case failed > 1:
			after.Store(string(c.Message.Key), true)
		}
		return count(ctx, tx, c)
	})
	s.start(p)
	var first string
	select {
	case first = <-begun:
	case <-time.After(4 * time.Minute):
		t.Fatal("nothing runs alone")
	}
	rows, err := s.pool.Query(t.Context(), `
		UPDATE troupe.local_work SET term = term + 1, locked_at = clock_timestamp(), locked_by = -1
		WHERE status = 'in progress' AND key <> $1
		RETURNING key`, first)
	require.NoError(t, err)
	taken, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.NotEmpty(t, taken)
	other, err := s.pool.Acquire(t.Context()) // a member that lives, as its lock shows
	require.NoError(t, err)
	defer other.Release()
	_, err = other.Exec(t.Context(), "SELECT pg_advisory_lock($1, -1)", participant.MemberClass)
	require.NoError(t, err)
	close(may)
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = $1", first)
	s.write("last", Count{N: 1}) // handled after those
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'last'")
	s.waitCount(keys+1-len(taken), "SELECT count(*) FROM done") // entries that were not claimed with them may come last
	for _, key := range taken {
		_, ran := after.Load(key)
		require.False(t, ran, key)
	}
	require.Equal(t, len(taken), s.count("SELECT count(*) FROM troupe.local_work WHERE status = 'in progress'"))

	_, err = other.Exec(t.Context(), "SELECT pg_advisory_unlock_all()") // the member dies
	require.NoError(t, err)
	s.waitCount(keys+1, "SELECT count(*) FROM done")
	s.expectLegal()
}

// late inserts a command that gets its position now; the returned function commits it.
func (s *stage) late(key string, body Count) (commit func()) {
	s.t.Helper()
	tx, err := s.pool.Begin(s.t.Context())
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(s.t.Context(), "INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, $2, 'Count', $3)",
		s.hop.Commands(), key, marshal(body))
	require.NoError(s.t, err)
	_, err = tx.Exec(s.t.Context(), "SELECT pg_notify('"+outboxrow.Channel+"', '')")
	require.NoError(s.t, err)
	return func() {
		s.t.Helper()
		require.NoError(s.t, tx.Commit(s.t.Context()))
	}
}

// TestAnEntryThatIsCommittedLateLeavesWhatWaitsBehindIt checks one that comes before an entry of its key that has failed:
// it does not bring the next try of that entry forward.
func TestAnEntryThatIsCommittedLateLeavesWhatWaitsBehindIt(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	commit := s.late("a", Count{N: 1})
	s.write("a", Count{N: 2, Fail: "error"})
	p := s.new(func(c *participant.Config) {
		c.Batch, c.Immediate = 10, -1
		c.Retry = retry.Policy{Initial: time.Hour, Cap: time.Hour, NoJitter: true, Attempts: 3}
	})
	participant.Handle(p, count)
	s.start(p)
	s.waitCount(1, "SELECT count(*) FROM troupe.local_work WHERE status = 'pending' AND attempts = 1")
	commit()
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 1")
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.local_work WHERE status = 'pending' AND attempts = 1 AND next_try > now() + interval '50 minutes'"))
	require.Equal(t, 2, s.count("SELECT count(*) FROM claims"), "one for each")
}

// TestAnEntryThatIsCommittedLateLeavesWhatRunsBehindIt checks that the running entry is not claimed with it, nor waited
// for.
func TestAnEntryThatIsCommittedLateLeavesWhatRunsBehindIt(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	commit := s.late("a", Count{N: 1})
	s.write("a", Count{N: 2})
	begun, may := make(chan struct{}), make(chan struct{})
	p := s.new(func(c *participant.Config) { c.Batch = 10 })
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if c.Body.N == 2 {
			close(begun)
			<-may
		}
		return count(ctx, tx, c)
	})
	s.start(p)
	<-begun
	commit()
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 1")
	close(may)
	s.waitCount(2, "SELECT count(*) FROM done")
	s.waitCount(2, "SELECT count(*) FROM troupe.local_work WHERE status = 'done'")
	require.Equal(t, 2, s.count("SELECT count(*) FROM claims"), "one for each")
	s.expectLegal()
}
