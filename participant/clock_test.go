package participant_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
)

// slowClock returns a pool whose clock is 20 days slow.
func (s *stage) slowClock() *pgxpool.Pool {
	s.exec(`CREATE SCHEMA behind;
		CREATE FUNCTION behind.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
		AS $$ SELECT pg_catalog.clock_timestamp() - interval '20 days' $$`)
	cfg := s.pool.Config()
	cfg.ConnConfig.RuntimeParams["search_path"] = "behind, pg_catalog, public"
	pool, err := pgxpool.NewWithConfig(s.t.Context(), cfg)
	require.NoError(s.t, err)
	s.t.Cleanup(pool.Close)
	return pool
}

// TestTheInboxGoesByTheDatabasesClock checks that a member whose own clock is 20 days ahead of the database's does not use
// tables of today for days to come. Here the database's clock is 20 days slow.
func TestTheInboxGoesByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(func(c *participant.Config) { c.Pool = s.slowClock() })
	require.NoError(t, p.TurnNow())
	today := int(time.Now().Unix() / (24 * 60 * 60))
	require.InDelta(t, today-20+1, s.count("SELECT max(day) FROM troupe.inbox_slots"), 1)
}

// TestANextTryOfAMessageFromAClockThatWasAheadIsNotWaitedFor: a message failed while the database's clock was a day ahead. It does not wait until
// the clock has reached its next try, nor do the messages behind it. One that failed by the present clock waits.
func TestANextTryOfAMessageFromAClockThatWasAheadIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for name, table := range map[string]string{"Kafka": "held", "local work": "local_work"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			local := table == "local_work"
			var works atomic.Bool
			start := func() func() {
				p := s.new(onePartition, holdLong, func(c *participant.Config) {
					if c.Local = local; local {
						c.Brokers = nil
					}
				})
				participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
					if c.Body.Fail != "" && !works.Load() {
						return participant.Outcome{}, errAsked
					}
					return count(ctx, tx, participant.Command[Count]{Body: Count{N: c.Body.N}, Message: c.Message, Attempt: c.Attempt})
				})
				return s.start(p)
			}
			if local {
				s.makeLocal()
				s.write("ahead", Count{N: 1, Fail: "first"}, Count{N: 2})
				s.write("now", Count{N: 1, Fail: "first"})
			} else {
				s.provision(1)
				s.send(s.command("ahead", Count{N: 1, Fail: "first"}), s.command("ahead", Count{N: 2}), s.command("now", Count{N: 1, Fail: "first"}))
			}
			stop := start()
			s.waitCount(2, "SELECT count(*) FROM troupe."+table+" WHERE next_try > now()")
			stop()
			key := "convert_from(key, 'UTF8')"
			if local {
				key = "key"
			}
			s.exec("UPDATE troupe." + table + ` SET next_try = next_try + interval '1 day', last_failed_at = last_failed_at + interval '1 day',
				first_failed_at = first_failed_at + interval '1 day' WHERE next_try IS NOT NULL AND ` + key + " = 'ahead'")
			works.Store(true)
			start()
			s.waitCount(2, "SELECT count(*) FROM done WHERE key = 'ahead'")
			require.Zero(t, s.count("SELECT count(*) FROM done WHERE key = 'now'"))
		})
	}
}

// TestTheWaitForARateLimitGoesByTheDatabasesClock: a message that failed a moment ago is tried again, although the member's clock is 20 days ahead.
func TestTheWaitForARateLimitGoesByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	for name, local := range map[string]bool{"Kafka": false, "local work": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			p := s.new(onePartition, func(c *participant.Config) {
				c.Pool, c.RateLimitedWait, c.Immediate = s.slowClock(), time.Hour, -1
				if c.Local = local; local {
					c.Brokers = nil
				}
			})
			var tries atomic.Int64
			participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
				if tries.Add(1) < 3 {
					return participant.Outcome{}, retry.RateLimited(errAsked, time.Second)
				}
				return count(ctx, tx, c)
			})
			if local {
				s.makeLocal()
				s.write("a", Count{N: 1})
			} else {
				s.provision(1)
				s.send(s.command("a", Count{N: 1}))
			}
			s.start(p)
			s.waitCount(1, "SELECT (SELECT count(*) FROM done) + (SELECT count(*) FROM troupe.dead_letters)")
			require.Equal(t, 1, s.count("SELECT count(*) FROM done"))
		})
	}
}
