package participant_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
)

// TestCompetingProcessesNeverClaimTwice lets three processes with their workers empty one table.
func TestCompetingProcessesNeverClaimTwice(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 20} {
		t.Run(fmt.Sprintf("%d at once", batch), func(t *testing.T) {
			t.Parallel()
			s := newLocalStage(t)
			s.makeLocal()
			s.batch = batch
			const keys = 20
			each := 25
			s.writeAll(keys, each)
			members := []*process{s.member("", 0), s.member("", 0), s.member("", 0)}
			s.expectAll(keys, each)
			// The last one to start may have found no entry left.
			waitFor(t, "each of them to have had something", func() bool {
				if s.count("SELECT count(DISTINCT locked_by) FROM claims") >= len(members) {
					return true
				}
				each++
				for k := range keys {
					s.write(fmt.Sprintf("k-%d", k), Count{N: each})
				}
				s.waitCount(keys*each, "SELECT count(*) FROM done")
				return false
			})
			s.expectAll(keys, each)
			s.waitCount(keys*each, "SELECT count(*) FROM troupe.local_work WHERE status = 'done'")
			require.Equal(t, keys*each, s.count("SELECT count(*) FROM claims"), "an entry was claimed twice")
			s.expectLegal()
			for _, m := range members {
				m.terminate(t)
			}
		})
	}
}

// TestAKillAtAnyStepOfLocalWorkLosesAndDoublesNothing checks that the entries of a killed process are taken over at once.
func TestAKillAtAnyStepOfLocalWorkLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	const keys, each = 5, 20
	for _, point := range []string{"before the handler", "before the commit", "after the commit"} {
		for _, batch := range []int{1, 20} {
			t.Run(fmt.Sprintf("%s, %d at once", point, batch), func(t *testing.T) {
				t.Parallel()
				s := newLocalStage(t)
				s.makeLocal()
				s.batch = batch
				s.writeAll(keys, each)
				s.member(point, keys*each/2).killed(t)
				second := s.member("", 0)
				s.expectAll(keys, each) // long before Config.Stale
				second.terminate(t)
				s.expectLegal()
			})
		}
	}
}

// TestAttemptsOfLocalWorkSurviveACrash kills the member after each failed attempt.
func TestAttemptsOfLocalWorkSurviveACrash(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	s.write("a", Count{N: 1, Fail: "error"}, Count{N: 2})
	for attempt := 1; attempt < 4; attempt++ {
		s.member("after a failed attempt", 1).killed(t)
		require.Equal(t, attempt, s.count("SELECT attempts FROM troupe.local_work WHERE attempts > 0"))
	}
	last := s.member("", 0)
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE attempts = 4 AND error_class = 'transient'")
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 2")
	require.Equal(t, 1, s.count("SELECT total FROM counters"), "what failed has left nothing")
	last.terminate(t)
}

// TestLocalWorkThatKillsItsProcessIsPoison checks also that no other entry counts as the cause.
func TestLocalWorkThatKillsItsProcessIsPoison(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	s.batch = 10
	s.writeAll(8, 2)
	s.write("bad", Count{N: 1, Fail: "kill"}, Count{N: 2})
	deaths := 0
	for ; s.count("SELECT count(*) FROM troupe.dead_letters") == 0; deaths++ {
		require.Less(t, deaths, 10)
		m := s.member("", 0)
		ctx, cancel := context.WithCancel(t.Context())
		buried := s.until(ctx, "SELECT count(*) FROM troupe.dead_letters", 1)
		select {
		case <-m.ended:
			cancel()
			<-buried
		case <-buried:
			cancel()
			s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'bad' AND n = 2")
			s.waitCount(16, "SELECT count(*) FROM done WHERE key <> 'bad'")
			m.terminate(t)
		}
	}
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'poison' AND error LIKE '%ended 5 times%'"))
	require.Equal(t, 6, deaths, "five deaths and the one that buried it")
	require.Zero(t, s.count("SELECT count(*) FROM steps WHERE was = now AND crashes = 0"), "a crash that was not counted")
	s.expectLegal()
}

// TestLocalWorkThatCouldNotBeGivenBackIsGivenBackLater checks entries whose return the database refuses for a while. The member's own
// connection, which shows that it lives, is not cut.
func TestLocalWorkThatCouldNotBeGivenBackIsGivenBackLater(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	_, err := s.pool.Exec(t.Context(), `
		CREATE TABLE refused (n int);
		CREATE SEQUENCE refusals;
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF EXISTS (SELECT FROM refused) THEN
				PERFORM nextval('refusals');
				RAISE EXCEPTION 'not now';
			END IF;
			RETURN NEW;
		END $$;
		CREATE TRIGGER refuse BEFORE UPDATE ON troupe.local_work FOR EACH ROW WHEN (OLD.status = 'in progress' AND NEW.status = 'pending')
		EXECUTE FUNCTION refuse();
		INSERT INTO refused VALUES (1)`)
	require.NoError(t, err)
	var away atomic.Bool
	away.Store(true)
	p := s.new(onlyOnce, func(c *participant.Config) { c.Stale = time.Hour })
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if away.Load() {
			return participant.Outcome{}, retry.Unavailable("the bank", fmt.Errorf("no route"))
		}
		return count(ctx, tx, c)
	})
	s.start(p)
	s.writeAll(3, 2)
	testkit.Wait(t, "a return that is refused", func() (bool, error) {
		return s.count("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM refusals") > 0, nil
	})
	away.Store(false)
	_, err = s.pool.Exec(t.Context(), "DELETE FROM refused")
	require.NoError(t, err)
	s.expectAll(3, 2)
	s.waitCount(6, "SELECT count(*) FROM troupe.local_work WHERE status = 'done' AND crashes = 0")
	s.expectLegal()
}

// TestAFrozenMembersLocalWorkIsTakenOverWhenStale checks a member that had claimed the entries and not begun them; when it
// wakes they have another owner.
func TestAFrozenMembersLocalWorkIsTakenOverWhenStale(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	const each = 3
	for n := range each {
		s.write("a", Count{N: n + 1})
	}
	first := s.memberOf(task{Die: "after the commit", Nth: 1, Freeze: true, Batch: 1, Concurrency: 1})
	s.waitFrozen(first)
	require.Equal(t, 1, s.count("SELECT count(*) FROM done"))
	_, err := s.pool.Exec(t.Context(), `
		UPDATE troupe.local_work SET status = 'in progress', term = term + 1, locked_at = clock_timestamp(),
			locked_by = (SELECT locked_by FROM claims ORDER BY at LIMIT 1) WHERE status = 'pending'`)
	require.NoError(t, err)
	second := s.memberOf(task{Batch: 1, Stale: 500 * time.Millisecond})
	s.expectAll(1, each)
	require.NoError(t, first.Process.Signal(syscall.SIGCONT))
	second.terminate(t)
	first.terminate(t)
	s.expectExactly(1, each)
}

// TestALongCallDoesNotRunTwice checks that a call that outlasts the stale lock several times over runs once.
func TestALongCallDoesNotRunTwice(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	s.write("a", Count{N: 1}, Count{N: 2})
	var runs atomic.Int64
	may, begun := make(chan struct{}), make(chan struct{}, 10)
	handler := func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if c.Body.N == 1 {
			runs.Add(1)
			begun <- struct{}{}
			<-may
		}
		return count(ctx, tx, c)
	}
	for range 2 {
		p := s.new(func(c *participant.Config) { c.Stale = 500 * time.Millisecond }) // or they take over entries not begun
		participant.Handle(p, handler)
		s.start(p)
	}
	<-begun
	s.waitCount(1, "SELECT count(*) FROM troupe.local_work WHERE status = 'in progress' AND locked_at < clock_timestamp() - interval '2 seconds'")
	s.write("b", Count{N: 2}, Count{N: 3}, Count{N: 4}) // so that both continue to claim
	s.waitCount(3, "SELECT count(*) FROM done WHERE key = 'b'")
	require.Zero(t, s.count("SELECT count(*) FROM done WHERE key = 'a'"), "later entries wait")
	close(may)
	s.waitCount(2, "SELECT count(*) FROM done WHERE key = 'a'")
	require.EqualValues(t, 1, runs.Load())
	s.expectLegal()
}

// TestLocalSoak kills and freezes members under load, for the duration TROUPE_SOAK.
func TestLocalSoak(t *testing.T) {
	t.Parallel()
	length := soakLength(t)
	for _, batch := range []int{1, 50} {
		t.Run(fmt.Sprintf("%d at once", batch), func(t *testing.T) { // one after the other
			s := newLocalStage(t)
			s.makeLocal()
			s.batch = batch
			s.localSoak(length)
		})
	}
}

func (s *stage) localSoak(length time.Duration) {
	t := s.t
	const keys = 16
	members := []*process{s.member("", 0), s.member("", 0), s.member("", 0)}
	each, kills, freezes := 0, 0, 0
	var frozen *process
	trouble := time.NewTicker(time.Second)
	defer trouble.Stop()
	load := time.NewTicker(50 * time.Millisecond)
	defer load.Stop()
	for end := time.After(length); ; {
		select {
		case <-end:
			if frozen != nil {
				require.NoError(t, frozen.Process.Signal(syscall.SIGCONT))
			}
			s.expectAll(keys, each)
			s.waitCount(keys*each, "SELECT count(*) FROM troupe.local_work WHERE status = 'done'")
			s.expectLegal()
			for _, m := range members {
				m.terminate(t)
			}
			t.Logf("%d commands, %d kills, %d freezes, %d taken over", keys*each, kills, freezes,
				s.count("SELECT count(*) FROM steps WHERE was = now"))
			return
		case <-trouble.C:
			victim := rand.IntN(len(members))
			switch {
			case frozen != nil && rand.IntN(2) == 0:
				require.NoError(t, frozen.Process.Signal(syscall.SIGCONT))
				frozen = nil
			case frozen == nil && rand.IntN(3) == 0:
				frozen = members[victim]
				require.NoError(t, frozen.Process.Signal(syscall.SIGSTOP))
				freezes++
			case members[victim] != frozen:
				require.NoError(t, members[victim].Process.Kill())
				members[victim].killed(t)
				members[victim] = s.member("", 0)
				kills++
			}
		case <-load.C:
			each++
			batch := &pgx.Batch{}
			for k := range keys {
				batch.Queue("INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, $2, 'Count', $3)", s.hop.Commands(),
					fmt.Sprintf("k-%d", k), marshal(Count{N: each}))
			}
			require.NoError(t, s.pool.SendBatch(t.Context(), batch).Close())
		}
	}
}

// until returns a channel that is closed when a count is reached, or ctx has ended.
func (s *stage) until(ctx context.Context, sql string, want int) <-chan struct{} {
	reached := make(chan struct{})
	go func() {
		defer close(reached)
		testkit.Wait(s.t, sql, func() (bool, error) {
			var n int
			err := s.pool.QueryRow(ctx, sql).Scan(&n)
			if ctx.Err() != nil {
				return true, nil
			}
			return n >= want, err
		})
	}()
	return reached
}
