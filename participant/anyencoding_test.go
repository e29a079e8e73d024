package participant_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
)

// inEncoding moves the stage to a database in another encoding.
func (s *stage) inEncoding(encoding string, params map[string]string) {
	s.t.Helper()
	server, config := s.pool, s.pool.Config()
	name := config.ConnConfig.Database + "_odd"
	s.exec("CREATE DATABASE " + name + " ENCODING '" + encoding + "' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	config.ConnConfig.Database = name
	require.NoError(s.t, migrations.UpConfig(s.t.Context(), config.ConnConfig))
	for key, value := range params {
		config.ConnConfig.RuntimeParams[key] = value
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		pool.Close()
		_, err := server.Exec(context.Background(), "DROP DATABASE "+name)
		require.NoError(s.t, err)
	})
	s.pool = pool
	s.exec(counters)
	s.exec(metTable)
}

// TestKeysAreTheSameInADatabaseOfAnyEncoding checks answers, other messages and deadlines: in Kafka their keys and headers are the ones of
// the handled message, also where the database's encoding has no such characters, and a deadline meets its scope.
func TestKeysAreTheSameInADatabaseOfAnyEncoding(t *testing.T) {
	t.Parallel()
	for _, db := range []struct {
		name, encoding string
		params         map[string]string
	}{
		{"LATIN1", "LATIN1", nil},
		{"WIN1252", "WIN1252", nil},
		{"SQL_ASCII", "SQL_ASCII", nil},
		{"UTF8", "UTF8", nil},
		{"LATIN1 and a client in UTF8", "LATIN1", map[string]string{"client_encoding": "UTF8"}},
	} {
		t.Run(db.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.inEncoding(db.encoding, db.params)
			s.provision(1)
			p := s.new(onePartition)
			participant.OnDeadline(p, overdueName, overdue)
			participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
				d := participant.Deadline{Name: overdueName, Scope: "scope", Body: Overdue{N: c.Body.N}}
				if db.params == nil { // the column of the scope is text
					d.Scope = ""
				}
				if c.Body.N == 2 {
					d.Scope, d.Keep = d.Scope+"kept", true
				}
				err := p.Schedule(ctx, tx, d)
				if err == nil {
					err = p.Outbox().Write(ctx, tx, outbox.Entry{Topic: s.hop.Events(), Key: string(c.Message.Key), Body: Counted{N: -1}})
				}
				return participant.Succeed(Counted{N: c.Body.N}), err
			})
			const key = "zoë “λ”\u2028"
			s.start(p)
			s.relayed()
			first, second := s.command(key, Count{N: 1}), s.command(key, Count{N: 2})
			s.send(first, second)
			s.waitCount(2, "SELECT count(*) FROM met")
			require.Equal(t, 2, s.count("SELECT count(*) FROM met WHERE key = $1", []byte(key)))
			for _, record := range testkit.Consume(t, s.brokers, s.hop.Events()).WaitN(4) {
				event, err := kafka.Message(record)
				require.NoError(t, err)
				require.Equal(t, []string{key, key, "flow-" + key}, []string{string(event.Key), event.Subject, event.CorrelationID})
			}
			require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
		})
	}
}

var errOdd = errors.New("no order “λ…”")

// TestAnErrorInAnyTextIsStoredInADatabaseOfAnyEncoding checks failures whose errors have characters that the database's encoding, or UTF-8,
// lacks: they are recorded, and hold up no other message.
func TestAnErrorInAnyTextIsStoredInADatabaseOfAnyEncoding(t *testing.T) {
	t.Parallel()
	for _, db := range []struct {
		name, encoding string
		params         map[string]string
	}{
		{"LATIN1 and a client in UTF8", "LATIN1", map[string]string{"client_encoding": "UTF8"}},
		{"WIN1252", "WIN1252", nil},
	} {
		for _, local := range []bool{false, true} {
			t.Run(db.name+map[bool]string{false: ", Kafka", true: ", local work"}[local], func(t *testing.T) {
				t.Parallel()
				s := newStage(t)
				s.inEncoding(db.encoding, db.params)
				p := s.new(onePartition, holdLong, func(c *participant.Config) {
					if c.Local = local; local {
						c.Brokers = nil
					}
				})
				participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
					switch c.Body.Fail {
					case "permanent":
						return participant.Outcome{}, retry.Permanent(errOdd)
					case "error":
						return participant.Outcome{}, errOdd
					}
					return count(ctx, tx, c)
				})
				if local {
					s.makeLocal()
					s.write("a", Count{N: 1, Fail: "permanent"}, Count{N: 2, Fail: "error"})
					s.write("b", Count{N: 1})
				} else {
					s.send(s.command("a", Count{N: 1, Fail: "permanent"}), s.command("a", Count{N: 2, Fail: "error"}), s.command("b", Count{N: 1}))
				}
				s.start(p)
				s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters")
				s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'b'")
				var held []repair.HeldKey
				testkit.Wait(t, "the held message", func() (_ bool, err error) {
					held, _, err = s.desk().Held(t.Context(), repair.HeldFilter{}, repair.Page{})
					return len(held) == 1, err
				})
				require.Equal(t, "no order ??...?", held[0].Error)
				_, err := s.desk().Release(t.Context(), held[0].Place, repair.ReleaseConfig{By: ann})
				require.NoError(t, err)
				require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.dead_letters WHERE error LIKE 'no order ?%'"))
			})
		}
	}
}

// TestAnyTextOfAMessageStopsNoPartitionInADatabaseOfAnyEncoding: attributes of a message have characters that the database's encoding lacks. The
// message becomes a dead letter, or waits behind a held one of its key, and others go on.
func TestAnyTextOfAMessageStopsNoPartitionInADatabaseOfAnyEncoding(t *testing.T) {
	t.Parallel()
	const text = "λ-1"
	for odd, change := range map[string]func(m *envelope.Message){
		"id":              func(m *envelope.Message) { m.ID = text },
		"idempotency key": func(m *envelope.Message) { m.IdempotencyKey = text },
		"type":            func(m *envelope.Message) { m.Type = text },
		"saga":            func(m *envelope.Message) { m.SagaID, m.SagaStep, m.SagaOperation = text, text, "forward" },
		"compensation": func(m *envelope.Message) {
			m.SagaID, m.SagaStep, m.SagaOperation, m.ID = text, text, "compensate", text
		},
	} {
		for _, batch := range []int{1, 10} {
			t.Run(fmt.Sprintf("%s, batch %d", odd, batch), func(t *testing.T) {
				t.Parallel()
				s := newStage(t)
				s.inEncoding("LATIN1", map[string]string{"client_encoding": "UTF8"})
				s.provision(1)
				p := s.new(onePartition, atOnce, holdLong, func(c *participant.Config) { c.Batch = batch })
				participant.Handle(p, count)
				free, behind := s.command("free", Count{N: 1}), s.command("held", Count{N: 2})
				change(&free)
				change(&behind)
				s.send(free, s.command("other", Count{N: 1}), s.command("held", Count{N: 1, Fail: "error"}), behind, s.command("held", Count{N: 3}), s.command("other", Count{N: 2}))
				s.start(p)
				s.waitCount(2, "SELECT count(*) FROM done WHERE key = 'other'")
				s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'poison' AND key = 'free'")
				s.waitCount(3, "SELECT count(*) FROM troupe.held WHERE key = 'held'")
				require.NoError(t, p.Ready())
				_, err := s.desk().Release(t.Context(), s.firstHeld(), repair.ReleaseConfig{By: ann})
				require.NoError(t, err)
				s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'held' AND n = 3")
				s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'poison' AND key = 'held'")
				require.NoError(t, p.Ready())
			})
		}
	}
}

// firstHeld returns the place of the first message of the only held key.
func (s *stage) firstHeld() repair.Place {
	s.t.Helper()
	held, _, err := s.desk().Held(s.t.Context(), repair.HeldFilter{}, repair.Page{})
	require.NoError(s.t, err)
	require.Len(s.t, held, 1)
	return held[0].Place
}

// heldInserts counts the statements that store held messages.
type heldInserts struct{ n atomic.Int64 }

func (h *heldInserts) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		if strings.Contains(q.SQL, "INSERT INTO troupe.held") {
			h.n.Add(1)
		}
	}
	return ctx
}

func (*heldInserts) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (*heldInserts) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (*heldInserts) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (*heldInserts) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestMessagesThatTheDatabaseCannotStoreDoNotCostABatchEach: a batch of them waits behind a held message of their key.
func TestMessagesThatTheDatabaseCannotStoreDoNotCostABatchEach(t *testing.T) {
	t.Parallel()
	const most = 64
	s := newStage(t)
	s.inEncoding("LATIN1", map[string]string{"client_encoding": "UTF8"})
	s.provision(1)
	var inserts heldInserts
	cfg := s.pool.Config()
	cfg.ConnConfig.Tracer = &inserts
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	p := s.new(onePartition, holdLong, func(c *participant.Config) { c.Pool, c.Batch = pool, most })
	participant.Handle(p, count)
	s.start(p)
	s.send(s.command("a", Count{N: 1, Fail: "error"}))
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts = 1")
	var odd []envelope.Message
	for n := range most {
		m := s.command("a", Count{N: n})
		m.ID = fmt.Sprint("λ-", n)
		odd = append(odd, m)
	}
	s.send(odd...)
	s.waitCount(most+1, "SELECT count(*) FROM troupe.held")
	require.Less(t, inserts.n.Load(), int64(6*most), "twice each, and halves of the batch")
}
