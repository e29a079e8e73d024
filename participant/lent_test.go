package participant_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
)

// TestTransactionIsAnErrorOnceItsHandlerHasReturned checks it while the transaction goes on for others and after its end.
func TestTransactionIsAnErrorOnceItsHandlerHasReturned(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 10} {
		s := newStage(t)
		type used struct {
			tx, savepoint pgx.Tx
			ctx           context.Context
		}
		kept := make(chan used, 1)
		tried := make(chan []error, 2)
		p := s.new(onePartition, func(c *participant.Config) { c.Batch, c.Concurrency = batch, 1 })
		try := func(u used) {
			const insert = "INSERT INTO done (key, n, attempt) VALUES ('leaked', 1, 1)"
			ctx := context.WithoutCancel(u.ctx)
			var errs []error
			for _, tx := range []pgx.Tx{u.tx, u.savepoint} {
				_, exec := tx.Exec(ctx, insert)
				rows, query := tx.Query(ctx, insert+" RETURNING n")
				rows.Close()
				var n int
				_, begin := tx.Begin(ctx)
				_, prepare := tx.Prepare(ctx, "", insert)
				var b pgx.Batch
				b.Queue(insert)
				_, copied := tx.CopyFrom(ctx, pgx.Identifier{"done"}, []string{"key", "n", "attempt"}, pgx.CopyFromRows([][]any{{"leaked", 1, 1}}))
				errs = append(errs, exec, query, rows.Err(), tx.QueryRow(ctx, insert+" RETURNING n").Scan(&n), begin, prepare,
					tx.SendBatch(ctx, &b).Close(), copied, tx.Commit(ctx), tx.Rollback(ctx), participant.Queue(ctx, tx, insert),
					p.Outbox().Write(ctx, tx, entry("leaked", Counted{})))
				if participant.AfterCommit(tx, func() {}) {
					errs = append(errs, nil)
				}
			}
			tried <- errs
		}
		participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
			switch c.Body.N {
			case 1:
				savepoint, err := tx.Begin(ctx)
				if err != nil {
					return participant.Outcome{}, err
				}
				select {
				case kept <- used{tx, savepoint, ctx}:
				default:
				}
			case 2:
				u := <-kept
				try(u)
				kept <- u
			}
			return count(ctx, tx, c)
		})
		s.provision(1)
		s.send(s.command("a", Count{N: 1}), s.command("b", Count{N: 2}))
		s.start(p)
		s.waitCount(2, "SELECT count(*) FROM done")
		try(<-kept)
		for range 2 {
			for i, err := range <-tried {
				require.ErrorIs(t, err, pgx.ErrTxClosed, "use %d", i)
				require.ErrorContains(t, err, "the handler has returned")
			}
		}
		require.Equal(t, 2, s.count("SELECT count(*) FROM done"))
		require.Empty(t, s.entries("leaked"))
	}
}

// TestHandlerThatEndsItsTransactionIsADeadLetter checks that it names the mistake, whatever the handler returns, and that
// others are not harmed.
func TestHandlerThatEndsItsTransactionIsADeadLetter(t *testing.T) {
	t.Parallel()
	const insert = "INSERT INTO done (key, n, attempt) VALUES ('ended', 1, 1)"
	for name, end := range map[string]func(context.Context, pgx.Tx) error{
		"commit": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "COMMIT"); return err },
		"among others": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, insert+"; /* so */ commit; BEGIN")
			return err
		},
		"rollback in a query": func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, "ROLLBACK AND CHAIN")
			rows.Close()
			return err
		},
		"queued": func(ctx context.Context, tx pgx.Tx) error { return participant.Queue(ctx, tx, "END") },
		"in a savepoint": func(ctx context.Context, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "ABORT"); return err })
		},
	} {
		s := newStage(t)
		p := s.new(onePartition, func(c *participant.Config) { c.Batch, c.Concurrency = 10, 1 })
		participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
			if c.Body.N == 7 {
				_, _ = tx.Exec(ctx, insert)
				_ = end(ctx, tx) // it ignores the error
			}
			return count(ctx, tx, c)
		})
		s.provision(1)
		s.send(s.command("a", Count{N: 1}), s.command("b", Count{N: 7}), s.command("c", Count{N: 1}))
		s.start(p)
		s.waitCount(2, "SELECT count(*) FROM done")
		s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'permanent' AND error LIKE '%began or ended a transaction%'")
		require.Zero(t, s.count("SELECT count(*) FROM done WHERE key IN ('b', 'ended')"), name)
		require.Len(t, s.waitEvents(3), 3)
	}
}

// TestTransactionEndedOnItsConnectionIsNoticed checks that its messages become dead letters, since their effects are not known,
// and that none counts as handled.
func TestTransactionEndedOnItsConnectionIsNoticed(t *testing.T) {
	t.Parallel()
	for _, local := range []bool{false, true} {
		for _, held := range []bool{false, true} {
			for _, sql := range []string{"COMMIT", "ROLLBACK"} {
				s := newStage(t)
				if local {
					s = newLocalStage(t)
				}
				p := s.new(onePartition, func(c *participant.Config) { c.Batch, c.Concurrency, c.Immediate = 10, 1, -1 })
				participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
					if c.Body.N == 7 {
						if held && c.Attempt == 1 {
							return participant.Outcome{}, errAsked
						}
						_, err := tx.Conn().Exec(ctx, sql)
						return participant.Succeed(Counted{}), errors.Join(err, errAsked)
					}
					return count(ctx, tx, c)
				})
				if local {
					s.makeLocal()
					s.write("a", Count{N: 1})
					s.write("b", Count{N: 7})
					s.write("c", Count{N: 1})
				} else {
					s.provision(1)
					s.send(s.command("a", Count{N: 1}), s.command("b", Count{N: 7}), s.command("c", Count{N: 1}))
				}
				s.start(p)
				s.waitCount(3, "SELECT (SELECT count(*) FROM troupe.dead_letters) + (SELECT count(*) FROM troupe.outbox WHERE headers->>'ce_outcome' = 'success' AND topic = $1)", s.hop.Events())
				require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters WHERE message_id <> '' AND key = 'b' AND error LIKE '%ended its transaction on tx.Conn()%'"))
				require.Zero(t, s.count("SELECT count(*) FROM troupe.held"))
			}
		}
	}
}

// TestSettingsOfOneMessageAreNotAnothers checks the rest of the batch, and the next user of the connection.
func TestSettingsOfOneMessageAreNotAnothers(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]string{
		"local":      "SET LOCAL app.tenant = 'one'",
		"session":    "SET app.tenant = 'one'",
		"set_config": "SELECT set_config('app.tenant', 'one', true)",
		"configured": "SELECT pg_catalog.set_config('app.tenant', 'one', false)",
	} {
		for _, batch := range []int{1, 10} {
			s := newStage(t)
			p := s.new(onePartition, func(c *participant.Config) { c.Batch, c.Concurrency = batch, 1 })
			participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
				if c.Body.Fail == "set" {
					if _, err := tx.Exec(ctx, set); err != nil {
						return participant.Outcome{}, err
					}
				}
				_, err := tx.Exec(ctx, `INSERT INTO done (key, n, attempt)
					SELECT coalesce(current_setting('app.tenant', true), ''), $1, 1`, c.Body.N)
				return participant.Succeed(Counted{}), err
			})
			s.provision(1)
			var all []envelope.Message
			for n, key := range []string{"a", "b", "c", "d", "e", "f"} {
				c := Count{N: n}
				if key == "b" || key == "d" {
					c.Fail = "set"
				}
				all = append(all, s.command(key, c))
			}
			s.send(all...)
			s.start(p)
			s.waitCount(6, "SELECT count(*) FROM done")
			require.Equal(t, 2, s.count("SELECT count(*) FROM done WHERE key = 'one'"), "%s, batch %d", name, batch)
		}
	}
}
