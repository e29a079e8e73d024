package participant_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// newLocalStage returns a stage without a broker. Triggers record every change of status in troupe.local_work.
func newLocalStage(t testing.TB) *stage {
	s := &stage{t: t, pool: testkit.Database(t), hop: topics.MustHop(testkit.Flow(t), "payment"), local: true}
	_, err := s.pool.Exec(t.Context(), counters+`
		CREATE TABLE steps (at bigint GENERATED ALWAYS AS IDENTITY, position bigint, was text, now text, attempts int, crashes int);
		CREATE TABLE claims (at bigint GENERATED ALWAYS AS IDENTITY, position bigint, locked_by int);
		CREATE FUNCTION step() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO steps (position, was, now, attempts, crashes) VALUES (NEW.position, OLD.status, NEW.status, NEW.attempts, NEW.crashes);
			IF NEW.status = 'in progress' THEN
				INSERT INTO claims (position, locked_by) VALUES (NEW.position, NEW.locked_by);
			END IF;
			RETURN NEW;
		END $$;
		CREATE TRIGGER step AFTER UPDATE ON troupe.local_work FOR EACH ROW EXECUTE FUNCTION step();`)
	require.NoError(t, err)
	return s
}

// makeLocal makes the hop's commands local before a participant does.
func (s *stage) makeLocal() {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), "SELECT troupe.make_local($1, $2)", s.hop.Commands(), s.hop.String())
	require.NoError(s.t, err)
}

// write inserts a key's commands as a service in any language does: one insert for each.
func (s *stage) write(key string, bodies ...Count) {
	s.t.Helper()
	batch := &pgx.Batch{}
	for _, body := range bodies {
		batch.Queue("INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, $2, 'Count', $3)", s.hop.Commands(), key, marshal(body))
	}
	batch.Queue("SELECT pg_notify('" + outboxrow.Channel + "', '')")
	require.NoError(s.t, s.pool.SendBatch(s.t.Context(), batch).Close())
}

// writeAll writes commands that are numbered within their keys.
func (s *stage) writeAll(keys, each int) {
	for n := range each {
		for k := range keys {
			s.write(fmt.Sprintf("k-%d", k), Count{N: n + 1})
		}
	}
}

// expectLegal checks every change of status there was, and every entry's columns.
func (s *stage) expectLegal() {
	s.t.Helper()
	rows, err := s.pool.Query(s.t.Context(), "SELECT DISTINCT was || ' -> ' || now FROM steps ORDER BY 1")
	require.NoError(s.t, err)
	steps, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(s.t, err)
	require.Subset(s.t, []string{
		"pending -> in progress", "in progress -> in progress", "in progress -> pending", "in progress -> done", "in progress -> failed",
	}, steps)
	require.Zero(s.t, s.count("SELECT count(*) FROM troupe.local_work WHERE status IN ('done', 'failed') AND (locked_at IS NOT NULL OR next_try IS NOT NULL)"))
}

// TestLocalWorkIsAnsweredLikeAnyOther checks, without a broker, the same handlers with the same outcomes.
func TestLocalWorkIsAnsweredLikeAnyOther(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	p := s.new()
	var mu sync.Mutex
	fails := 2
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		outcome, err := count(ctx, tx, c)
		mu.Lock()
		defer mu.Unlock()
		if c.Body.Fail == "twice" && fails > 0 {
			fails--
			return outcome, errAsked
		}
		return outcome, err
	})
	s.start(p)
	testkit.Wait(t, "ready", func() (bool, error) { return p.Ready() == nil, p.Ready() })
	s.write("a", Count{N: 1})
	s.write("b", Count{N: 1, Fail: "refuse"})
	s.write("c", Count{N: 1, Fail: "twice"})
	s.write("d", Count{N: 1, Fail: "permanent"})
	s.waitCount(3, "SELECT count(*) FROM troupe.local_work WHERE status = 'done' AND attempts = 0 AND last_error IS NULL AND max_attempts = 4 AND locked_by IS NULL")
	s.waitCount(1, "SELECT count(*) FROM troupe.local_work WHERE status = 'failed' AND attempts = 1 AND last_error = 'as asked' AND key = 'd'")
	outcomes := make(map[string]string)
	for _, m := range s.waitEvents(4) {
		outcomes[string(m.Key)] = string(m.Outcome)
	}
	require.Equal(t, map[string]string{"a": "success", "b": "failure", "c": "success", "d": "exhausted"}, outcomes)
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters WHERE topic = $1 AND partition = -1 AND error_class = 'permanent'", s.hop.Commands()))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.DeadLetters()))
	require.Equal(t, 1, s.count("SELECT count(*) FROM done WHERE key = 'c' AND attempt = 3"))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Commands()), "what a relay would see")
	s.expectLegal()
}

// TestLocalWorkKeepsTheOrderOfAKey checks batches and single entries, next to a key that fails.
func TestLocalWorkKeepsTheOrderOfAKey(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 7, 100} {
		t.Run(fmt.Sprintf("%d at once", batch), func(t *testing.T) {
			t.Parallel()
			s := newLocalStage(t)
			s.makeLocal()
			s.batch = batch
			const keys, each = 10, 30
			s.writeAll(keys, each)
			var largest, told int
			var mu sync.Mutex
			p := s.new(onlyOnce, func(c *participant.Config) {
				c.Batch = batch
				c.Hooks.AfterCommit = func(d participant.Delivery) {
					mu.Lock()
					defer mu.Unlock()
					told++
					largest = max(largest, d.Batch)
				}
			})
			participant.Handle(p, count)
			s.start(p)
			s.expectAll(keys, each)
			s.waitCount(keys*each, "SELECT count(*) FROM troupe.local_work WHERE status = 'done'")
			s.expectLegal()
			waitFor(t, "all hooks", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return told == keys*each
			})
			require.LessOrEqual(t, largest, batch)
			require.Equal(t, batch > 1, largest > 1, "how much there is for one depends on what others have taken")
		})
	}
}

// TestAFailingHeadHoldsItsKeyOnly checks that next_try is honoured, later entries of the key wait, and every
// other key continues.
func TestAFailingHeadHoldsItsKeyOnly(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	s.write("bad", Count{N: 1, Fail: "error"}, Count{N: 2}, Count{N: 3})
	s.writeAll(5, 10)
	p := s.new(func(c *participant.Config) {
		c.Immediate, c.Batch = -1, 10
		c.Retry = retry.Policy{Initial: 300 * time.Millisecond, NoJitter: true, Attempts: 3}
	})
	participant.Handle(p, count)
	s.start(p)
	s.waitCount(50, "SELECT count(*) FROM done WHERE key <> 'bad'")
	s.waitCount(2, "SELECT count(*) FROM done WHERE key = 'bad'")
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.local_work WHERE key = 'bad' AND status = 'failed' AND attempts = 3 AND max_attempts = 3"))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters WHERE attempts = 3 AND last_failed_at - first_failed_at >= '900ms'"),
		"300 ms and 600 ms between the runs")
	require.Equal(t, 2, s.count("SELECT n FROM done WHERE key = 'bad' ORDER BY position LIMIT 1"))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.outbox WHERE topic = $1 AND headers->>'ce_outcome' = 'exhausted'", s.hop.Events()))
	s.expectLegal()
}
