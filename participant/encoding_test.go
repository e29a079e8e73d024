package participant_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
)

// TestARoleWithAnotherEncodingKeepsItsKeys checks a role whose client_encoding is not the one of Go: keys are the same in Kafka, in the
// answers, and in the rows of the handler, also after a failed attempt and with local work.
func TestARoleWithAnotherEncodingKeepsItsKeys(t *testing.T) {
	t.Parallel()
	for _, local := range []bool{false, true} {
		t.Run(map[bool]string{false: "Kafka", true: "local work"}[local], func(t *testing.T) {
			t.Parallel()
			const key = "zoë"
			s := newStage(t)
			cfg := s.pool.Config()
			cfg.ConnConfig.RuntimeParams["client_encoding"] = "LATIN1"
			pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			p := s.new(onePartition, func(c *participant.Config) {
				if c.Pool, c.Immediate, c.Local = pool, -1, local; local {
					c.Brokers = nil
				}
			})
			participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
				_, err := tx.Exec(ctx, "INSERT INTO done (key, n, attempt) VALUES ($1, $2, $3)", string(c.Message.Key), c.Body.N, c.Attempt)
				if err == nil && c.Attempt == 1 {
					err = errAsked
				}
				if err == nil {
					err = p.Outbox().Write(ctx, tx, outbox.Entry{Topic: s.hop.Events(), Key: key, Body: Counted{N: 0}})
				}
				return participant.Succeed(Counted{N: c.Body.N}), err
			})
			if local {
				s.makeLocal()
				s.write(key, Count{N: 1}, Count{N: 2})
			} else {
				s.send(s.command(key, Count{N: 1}), s.command(key, Count{N: 2}))
			}
			s.start(p)
			s.waitCount(2, "SELECT count(*) FROM done")
			require.Equal(t, 2, s.count("SELECT count(*) FROM done WHERE key = $1", key))
			require.Equal(t, 4, s.count("SELECT count(*) FROM troupe.outbox WHERE key = $1", key))
			require.Equal(t, 4, s.count("SELECT count(*) FROM troupe.outbox"))
		})
	}
}
