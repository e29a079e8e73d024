package participant_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/participant"
)

// inMode returns a pool that executes statements in another way, as a service needs it for a pooler.
func (s *stage) inMode(mode pgx.QueryExecMode) *pgxpool.Pool {
	s.t.Helper()
	cfg := s.pool.Config()
	cfg.ConnConfig.DefaultQueryExecMode = mode
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	require.NoError(s.t, err)
	s.t.Cleanup(pool.Close)
	return pool
}

// TestAPoolInAModeThatCannotSendAllArgumentsIsRefused: otherwise the participant would take each of its own errors for an outage, for ever.
func TestAPoolInAModeThatCannotSendAllArgumentsIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		p := s.new(func(c *participant.Config) { c.Pool = s.inMode(mode) })
		participant.Handle(p, count)
		require.ErrorContains(t, p.Run(t.Context()), "set its default_query_exec_mode to cache_describe")
	}
}

// TestAParticipantWorksWithAPoolThatPreparesNoStatements checks all that a message may become.
func TestAParticipantWorksWithAPoolThatPreparesNoStatements(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec} {
		for _, local := range []bool{false, true} {
			t.Run(mode.String()+map[bool]string{false: ", Kafka", true: ", local work"}[local], func(t *testing.T) {
				t.Parallel()
				s := newDeadlineStage(t)
				p := s.new(onePartition, func(c *participant.Config) {
					if c.Pool, c.Batch, c.Local = s.inMode(mode), 10, local; local {
						c.Brokers = nil
					}
				})
				participant.OnDeadline(p, overdueName, overdue)
				participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
					if c.Body.N == 1 {
						due := participant.Deadline{Name: overdueName, After: time.Millisecond, Body: Overdue{N: 1}}
						if err := p.Schedule(ctx, tx, due); err != nil {
							return participant.Outcome{}, err
						}
					}
					return count(ctx, tx, c)
				})
				bodies := []Count{{N: 1}, {N: 2, Fail: "refuse"}, {N: 3, Fail: "error"}, {N: 4, Fail: "permanent"}, {N: 5}}
				if local {
					s.makeLocal()
					s.write("a", bodies...)
					s.write("b", bodies...)
				} else {
					s.provision(1)
					for _, body := range bodies {
						first := s.command("a", body)
						s.send(first, first, s.command("b", body))
					}
					s.relayed()
				}
				s.start(p)
				s.waitCount(4, "SELECT count(*) FROM troupe.dead_letters")
				s.waitCount(6, "SELECT count(*) FROM done")
				s.waitCount(2, "SELECT count(*) FROM met")
				_, err := s.desk().Redrive(t.Context(), repair.Filter{}, repair.RedriveConfig{By: ann, Rate: -1})
				require.NoError(t, err)
				s.waitCount(8, "SELECT count(*) FROM troupe.dead_letters")
				require.Equal(t, 6, s.count("SELECT count(*) FROM done"))
			})
		}
	}
}
