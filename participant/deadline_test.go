package participant_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
)

const overdueName = "overdue"

// Overdue is the body of the tests' deadlines.
type Overdue struct {
	N    int    `json:"n"`
	Fail string `json:"fail,omitempty"`
}

const metTable = `CREATE TABLE met (
	position bigint GENERATED ALWAYS AS IDENTITY, name text NOT NULL, scope text NOT NULL, key bytea, n int NOT NULL,
	due_at timestamptz NOT NULL, attempt int NOT NULL, met_at timestamptz NOT NULL DEFAULT clock_timestamp())`

// overdue inserts a row for a handled deadline, so that a second effect shows.
func overdue(ctx context.Context, tx pgx.Tx, d participant.Due[Overdue]) error {
	_, err := tx.Exec(ctx, "INSERT INTO met (name, scope, key, n, due_at, attempt) VALUES ($1, $2, $3, $4, $5, $6)",
		d.Name, d.Scope, d.Message.Key, d.Body.N, d.At, d.Attempt)
	if err != nil {
		return err
	}
	switch d.Body.Fail {
	case "error":
		return errAsked
	case "permanent":
		return retry.Permanent(errAsked)
	}
	return nil
}

func newDeadlineStage(t testing.TB) *stage {
	s := newStage(t)
	_, err := s.pool.Exec(t.Context(), metTable)
	require.NoError(t, err)
	return s
}

// expecting returns a participant with a handler for deadlines, and one for commands that schedules or cancels as the body
// says.
func (s *stage) expecting(change ...func(*participant.Config)) *participant.Participant {
	p := s.new(append([]func(*participant.Config){onePartition}, change...)...)
	participant.OnDeadline(p, overdueName, overdue)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		var err error
		switch c.Body.Fail {
		case "schedule", "schedule and fail":
			err = p.Schedule(ctx, tx, participant.Deadline{Name: overdueName, Body: Overdue{N: c.Body.N}})
		case "cancel", "cancel and fail":
			err = p.Cancel(ctx, tx, overdueName, "")
		case "cancel all":
			err = p.CancelAll(ctx, tx, "")
		}
		if err == nil && strings.HasSuffix(c.Body.Fail, "and fail") {
			err = retry.Permanent(errAsked)
		}
		return participant.Succeed(Counted{N: c.Body.N}), err
	})
	return p
}

// relayed publishes the outbox until the test ends or the returned function was called.
func (s *stage) relayed() (stop func()) {
	s.t.Helper()
	r, err := relay.New(relay.Config{Source: relay.Poll, Pool: s.pool, Brokers: s.brokers, Service: "test", Lease: 1500 * time.Millisecond, Log: testkit.Logger(s.t)})
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	done := false
	stop = func() {
		if !done {
			done = true
			cancel()
			require.NoError(s.t, <-ended)
		}
	}
	s.t.Cleanup(stop)
	return stop
}

// schedule schedules outside of a handler.
func (s *stage) schedule(p *participant.Participant, all ...participant.Deadline) error {
	return pgx.BeginFunc(s.t.Context(), s.pool, func(tx pgx.Tx) error {
		for _, d := range all {
			if err := p.Schedule(s.t.Context(), tx, d); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *stage) waitMet(n int) {
	s.t.Helper()
	s.waitCount(n, "SELECT count(*) FROM met")
	require.Zero(s.t, s.count("SELECT count(*) FROM troupe.deadlines"), "met deadlines are deleted")
}

// fired returns the messages that deadlines became, once there are n of them.
func (s *stage) fired(n int) []envelope.Message {
	s.t.Helper()
	s.waitCount(n, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Commands())
	return s.entries(s.hop.Commands())
}

func TestADeadlineOfAHandlersTransactionIsMetByItsName(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	p := s.new(onePartition)
	due := make(chan participant.Due[Count], 2) // of the same type as the command
	participant.OnDeadline(p, "remind", func(ctx context.Context, tx pgx.Tx, d participant.Due[Count]) error {
		due <- d
		return p.Outbox().Write(ctx, tx, entry(s.hop.Events(), Counted{N: 7}))
	})
	participant.OnDeadline(p, overdueName, overdue)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		err := p.Schedule(ctx, tx, participant.Deadline{Name: "remind", After: 10 * time.Millisecond, Body: Count{N: 5}})
		if err != nil {
			return participant.Outcome{}, err
		}
		err = p.Schedule(ctx, tx, participant.Deadline{Name: overdueName, Scope: "s", Key: "other", After: 20 * time.Millisecond, Body: Overdue{N: 6}})
		return participant.Succeed(Counted{N: c.Body.N}), err
	})
	s.provision(1)
	s.start(p)
	m := s.command("a", Count{N: 1})
	s.send(m)
	s.send(s.fired(2)...)
	s.waitCount(1, "SELECT count(*) FROM met")
	require.Equal(t, 1, s.count("SELECT count(*) FROM met WHERE name = $1 AND scope = 's' AND key = 'other' AND n = 6 AND met_at > due_at", overdueName))
	d := <-due
	require.Equal(t, Count{N: 5}, d.Body)
	require.Equal(t, "a", string(d.Message.Key))
	require.Equal(t, []string{"remind", "a"}, []string{d.Name, d.Scope})
	require.Equal(t, []string{m.CorrelationID, m.ID}, []string{d.Message.CorrelationID, d.Message.CausationID})
	events := s.waitEvents(2)
	s.waitMet(1)
	require.Equal(t, []string{m.CorrelationID, d.Message.ID}, []string{events[1].CorrelationID, events[1].CausationID})
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
}

func TestARollbackSchedulesAndCancelsNothing(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	p := s.expecting()
	require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Key: "b", After: time.Hour, Body: Overdue{}}))
	s.provision(1)
	s.start(p)
	s.send(s.command("a", Count{Fail: "schedule and fail"}), s.command("b", Count{Fail: "cancel and fail"}))
	s.waitCount(2, "SELECT count(*) FROM troupe.dead_letters")
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.deadlines WHERE scope = 'b'"))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.deadlines"))
	s.send(s.command("b", Count{Fail: "cancel"}))
	s.waitCount(0, "SELECT count(*) FROM troupe.deadlines")
}

func TestSchedulingAgainReplaces(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	p := s.expecting()
	hour := participant.Deadline{Name: overdueName, Key: "a", After: time.Hour, Body: Overdue{N: 1}}
	soon, elsewhere := hour, hour
	soon.After, soon.Body = 0, Overdue{N: 2}
	elsewhere.Scope = "b"
	require.NoError(t, s.schedule(p, hour, elsewhere, soon))
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.deadlines"))
	s.provision(1)
	s.start(p)
	s.relayed()
	s.waitCount(1, "SELECT count(*) FROM met WHERE n = 2")
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.deadlines WHERE scope = 'b' AND fired_at IS NULL"))
}

// TestADeadlineWithAKeyIsCancelledByItsKey checks that the key of the message being handled is not its scope.
func TestADeadlineWithAKeyIsCancelledByItsKey(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	s.provision(1)
	p := s.new(onePartition)
	participant.OnDeadline(p, overdueName, overdue)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		var err error
		if c.Body.N == 1 {
			err = p.Schedule(ctx, tx, participant.Deadline{Name: overdueName, Key: "order-1", After: time.Hour, Body: Overdue{}})
		} else {
			err = p.Cancel(ctx, tx, overdueName, c.Body.Fail)
		}
		return participant.Succeed(Counted{N: c.Body.N}), err
	})
	s.start(p)
	s.send(s.command("a", Count{N: 1}), s.command("a", Count{N: 2}))
	s.waitEvents(2)
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.deadlines WHERE scope = 'order-1'"))
	s.send(s.command("a", Count{N: 3, Fail: "order-1"}))
	s.waitEvents(3)
	require.Zero(t, s.count("SELECT count(*) FROM troupe.deadlines"))
}
func TestALateFiringIsIgnored(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]string{"cancelled": "cancel", "cancelled with all": "cancel all", "replaced": "schedule"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newDeadlineStage(t)
			late := make(chan participant.Delivery, 10)
			p := s.expecting(func(c *participant.Config) { c.Hooks.Late = func(d participant.Delivery) { late <- d } })
			require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Key: "a", Body: Overdue{N: 1}}))
			s.provision(1)
			s.start(p)
			first := s.fired(1)[0]
			s.send(s.command("a", Count{N: 2, Fail: end}), first, s.command("a", Count{N: 3}))
			require.Equal(t, first.ID, (<-late).Message.ID)
			s.waitEvents(2) // later messages continue
			require.Zero(t, s.count("SELECT count(*) FROM met"))
			if how == "replaced" {
				s.send(s.fired(2)[1])
				s.waitMet(1)
				require.Equal(t, 1, s.count("SELECT count(*) FROM met WHERE n = 2"))
			}
			s.send(first) // once more, as by a relay that lost its acknowledgement
			s.send(s.command("a", Count{N: 4}))
			s.waitEvents(3)
			require.Equal(t, first.ID, (<-late).Message.ID)
			require.Empty(t, late)
			require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
		})
	}
}

// TestACancelJustBeforeInTheSameTransactionCounts checks a batch with the cancelling command and the deadline.
func TestACancelJustBeforeInTheSameTransactionCounts(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	p := s.expecting()
	require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Key: "a", Body: Overdue{}}))
	s.provision(1)
	stop := s.start(p)
	m := s.fired(1)[0]
	stop()
	s.send(s.command("a", Count{N: 1}), s.command("a", Count{N: 2, Fail: "cancel"}), m)
	var together atomic.Int64
	late := make(chan participant.Delivery, 1)
	p = s.expecting(func(c *participant.Config) {
		c.Batch = 10
		c.Hooks.Late = func(d participant.Delivery) {
			together.Store(int64(d.Batch))
			late <- d
		}
	})
	s.start(p)
	<-late
	require.EqualValues(t, 3, together.Load())
	require.Zero(t, s.count("SELECT count(*) FROM met"))
	s.waitEvents(2)
}

func TestAFiredMessageDeliveredAgainIsADuplicate(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	late := make(chan participant.Delivery, 10)
	p := s.expecting(func(c *participant.Config) { c.Hooks.Late = func(d participant.Delivery) { late <- d } })
	require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Key: "a", Body: Overdue{}}))
	s.provision(1)
	s.start(p)
	m := s.fired(1)[0]
	s.send(m, m)
	s.waitMet(1)
	s.send(m, s.command("a", Count{N: 1}))
	s.waitEvents(1)
	require.Equal(t, 1, s.count("SELECT count(*) FROM met"))
	require.Empty(t, late)
}

// TestADeadlineThatCameBeforeItWasScheduledAgainIsMet checks a database that was set back to before the deadline was scheduled. Its
// first message is read before the one that schedules it again, with the same id.
func TestADeadlineThatCameBeforeItWasScheduledAgainIsMet(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		table, id string
		age       time.Duration
	}{{"inbox_recent", "id::text", 0}, {"inbox", "message_id", 400 * 24 * time.Hour}} {
		t.Run(of.table, func(t *testing.T) {
			t.Parallel()
			s := newDeadlineStage(t)
			s.provision(1)
			late := make(chan participant.Delivery, 10)
			s.start(s.expecting(func(c *participant.Config) { c.Hooks.Late = func(d participant.Delivery) { late <- d } }))
			m := s.command("a", Count{N: 1, Fail: "schedule"})
			id := uuid.Must(uuid.NewV7())
			binary.BigEndian.PutUint64(id[:], uint64(time.Now().Add(-of.age).UnixMilli())<<16|7<<12) // its time is in the deadline's id
			m.ID = id.String()
			cause := kafka.Record(m)
			s.produce(cause)
			first := s.fired(1)[0]
			_, err := s.pool.Exec(t.Context(), `DELETE FROM troupe.deadlines; DELETE FROM troupe.outbox; DELETE FROM troupe.answers;
				DELETE FROM troupe.inbox; DELETE FROM troupe.inbox_recent; DELETE FROM done`)
			require.NoError(t, err)
			s.send(first)
			require.Equal(t, first.ID, (<-late).Message.ID)
			s.produce(cause)
			again := s.fired(1)[0]
			require.Equal(t, first.ID, again.ID)
			s.send(again, again)
			s.waitMet(1)
			require.Equal(t, 1, s.count("SELECT count(*) FROM troupe."+of.table+" WHERE "+of.id+" = $1", again.ID))
			s.send(s.command("a", Count{N: 2}))
			s.waitEvents(2)
			require.Equal(t, 1, s.count("SELECT count(*) FROM met"))
			require.Empty(t, late)
		})
	}
}

// TestADeadlineThatFailsGoesTheWayOfAMessage checks retries and the dead letter, and that a repaired deadline is still due.
func TestADeadlineThatFailsGoesTheWayOfAMessage(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	p := s.expecting()
	require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Key: "a", Body: Overdue{N: 1, Fail: "error"}}))
	s.provision(1)
	s.start(p)
	m := s.fired(1)[0]
	s.send(m, s.command("a", Count{N: 1}))
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE attempts = 4 AND handler = $1", s.hop.String()+"/deadline.overdue")
	require.Zero(t, s.count("SELECT count(*) FROM met"))
	desk, err := repair.New(repair.Config{Pool: s.pool})
	require.NoError(t, err)
	by := admin.Actor{Name: "ann", Reason: "test"}
	letters, _, err := desk.List(t.Context(), repair.Filter{}, repair.Page{})
	require.NoError(t, err)
	require.NoError(t, desk.Edit(t.Context(), letters[0].ID, []byte(`{"n":1}`), by))
	_, err = desk.Redrive(t.Context(), repair.Filter{IDs: []uuid.UUID{letters[0].ID}}, repair.RedriveConfig{By: by})
	require.NoError(t, err)
	s.send(s.fired(2)[1])
	s.waitMet(1)
}

func TestADeadlineWithoutAHandlerIsRefused(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	p := s.expecting()
	good := participant.Deadline{Name: overdueName, Key: "a", Body: Overdue{}}
	for want, spoil := range map[string]func(*participant.Deadline){
		"no handler expects it":         func(d *participant.Deadline) { d.Name = "over-due" },
		"no scope":                      func(d *participant.Deadline) { d.Key = "" },
		"no body":                       func(d *participant.Deadline) { d.Body = nil },
		"its handler expects Overdue":   func(d *participant.Deadline) { d.Body = Count{} },
		"both After and At":             func(d *participant.Deadline) { d.At, d.After = time.Now(), 1 },
		"after -1ns":                    func(d *participant.Deadline) { d.After = -1 },
		"after 87841h":                  func(d *participant.Deadline) { d.After = 3660*24*time.Hour + time.Hour },
		"at most 87840h":                func(d *participant.Deadline) { d.At = time.Now().AddDate(11, 0, 0) },
		outbox.ErrTooLarge.Error():      func(d *participant.Deadline) { d.Body = Overdue{Fail: strings.Repeat("x", 1_000_001)} },
		"schedule deadline \"overdue\"": func(d *participant.Deadline) { d.Body = func() {} },
	} {
		d := good
		spoil(&d)
		err := s.schedule(p, d)
		require.ErrorContains(t, err, want)
		require.Equal(t, participant.Permanent, participant.Classify(err), want)
	}
	require.NoError(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		require.ErrorContains(t, p.Cancel(t.Context(), tx, "over-due", "a"), "no handler expects it")
		require.ErrorContains(t, p.Cancel(t.Context(), tx, overdueName, ""), "no scope")
		require.ErrorContains(t, p.CancelAll(t.Context(), tx, ""), "no scope")
		return nil
	}))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.deadlines"))

	for name, want := range map[string]string{"": "want a name", "a/b": "want a name", strings.Repeat("x", 101): "want a name", overdueName: "two handlers for deadline overdue"} {
		p := s.expecting()
		participant.OnDeadline(p, name, overdue)
		require.ErrorContains(t, p.Run(t.Context()), want)
	}
}

// TestADeadlineOfANewerVersionWaitsForAMemberOfIt checks that a member of the earlier version starts, handles its own
// deadlines, logs the other one and does not fire it, although it is due.
func TestADeadlineOfANewerVersionWaitsForAMemberOfIt(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	newer := s.expecting()
	require.NoError(t, s.schedule(newer, participant.Deadline{Name: overdueName, Key: "a", Body: Overdue{}}))
	var log safeBuffer
	older := s.new(func(c *participant.Config) { c.Log = zerolog.New(&log) })
	participant.OnDeadline(older, "another", overdue)
	require.NoError(t, s.schedule(older, participant.Deadline{Name: "another", Key: "b", Body: Overdue{}}))
	stop := s.start(older)
	require.Equal(t, "b", string(s.fired(1)[0].Key), "its own is due later, and fired")
	waitFor(t, "the log", func() bool { return strings.Contains(log.String(), "no OnDeadline handles here") })
	require.Contains(t, log.String(), "overdue (1)")
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.deadlines WHERE name = $1 AND fired_at IS NULL", overdueName))
	stop()
	s.start(newer)
	require.Equal(t, "a", string(s.fired(2)[1].Key))
}

// TestADeadlineThatNobodyExpectsAnyMoreIsADeadLetter checks it, and that a deadline of another group on the topic is skipped.
func TestADeadlineThatNobodyExpectsAnyMoreIsADeadLetter(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	p := s.expecting()
	require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Key: "a", Body: Overdue{}}))
	s.provision(1)
	stop := s.start(p)
	m := s.fired(1)[0]
	stop()
	ours, theirs := m, m
	ours.ID, theirs.ID = envelope.NewID(), envelope.NewID()
	theirs.Extra = []envelope.Header{{Key: participant.HeaderDeadline, Value: []byte("another/" + overdueName)}}
	ours.Extra = []envelope.Header{{Key: participant.HeaderDeadline, Value: []byte(s.hop.String() + "/gone")}}
	p = s.expecting(atOnce)
	s.start(p)
	s.send(theirs, ours, s.command("a", Count{N: 1}))
	s.waitEvents(2)
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'poison' AND error LIKE '%no handler for deadline \"gone\"%'"))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters"))
}

func TestADeadlineInThePastIsDueAtOnce(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	p := s.expecting()
	var now time.Time
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&now))
	require.NoError(t, s.schedule(p,
		participant.Deadline{Name: overdueName, Key: "long past", At: now.Add(-24 * 365 * time.Hour), Body: Overdue{}},
		participant.Deadline{Name: overdueName, Key: "past", At: now.Add(-time.Millisecond), Body: Overdue{}},
		participant.Deadline{Name: overdueName, Key: "now", At: now, Body: Overdue{}},
		participant.Deadline{Name: overdueName, Key: "at once", Body: Overdue{}},
		participant.Deadline{Name: overdueName, Key: "never in this test", After: time.Hour, Body: Overdue{}}))
	s.provision(1)
	s.start(p)
	var keys []string
	for _, m := range s.fired(4) {
		keys = append(keys, string(m.Key))
	}
	require.Equal(t, []string{"long past", "past", "now", "at once"}, keys)
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.deadlines WHERE fired_at IS NULL"))
	// A late deadline with a time in the past is found, too: by the poll without limit.
	require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Key: "later", At: now.Add(-time.Hour), Body: Overdue{}}))
	require.Equal(t, "later", string(s.fired(5)[4].Key))
}

// TestKeysThatAreNoText checks that the deadline's message has the same key, and that its scope is a name for it.
func TestKeysThatAreNoText(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	p := s.expecting()
	s.provision(1)
	s.start(p)
	s.relayed()
	keys := []string{"\xff\x00", strings.Repeat("ключ", 1000), "\xfe"}
	for _, key := range keys {
		m := s.command(key, Count{N: 1, Fail: "schedule"})
		m.Subject, m.CorrelationID = "", "flow"
		s.send(m)
	}
	s.waitMet(len(keys))
	for _, key := range keys {
		require.Equal(t, 1, s.count("SELECT count(*) FROM met WHERE key = $1 AND length(scope) <= 255", []byte(key)))
	}
	keyless := s.command("", Count{N: 1, Fail: "schedule"})
	keyless.Key, keyless.Subject = nil, ""
	s.send(keyless)
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'permanent' AND error LIKE '%no scope%'")
}

func TestAProcessThatOnlySchedulesNeedsNoRun(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	s.provision(1)
	s.start(s.expecting())
	s.relayed()
	front := s.expecting()
	require.NoError(t, s.schedule(front, participant.Deadline{Name: overdueName, Key: "a", After: 50 * time.Millisecond, Body: Overdue{N: 3}}))
	s.waitMet(1)
}

// TestTenThousandPendingFireOnceAndInOrder lets two members fire, no deadline twice, none before it is due, none before an
// earlier one.
func TestTenThousandPendingFireOnceAndInOrder(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	s.provision(1)
	var fired [2]atomic.Int64
	for i := range fired {
		s.start(s.expecting(func(c *participant.Config) {
			c.Hooks.Fired = func(f participant.Fired) { fired[i].Add(int64(f.Deadlines)) }
		}))
	}
	const n = 10_000
	// None is due before all are stored: one that is already late would fire after the ones that are not.
	s.pending(n, 3*time.Second, 2*time.Second)
	s.waitCount(n, "SELECT count(*) FROM troupe.outbox")
	require.Equal(t, n, s.count("SELECT count(DISTINCT o.id) FROM troupe.outbox AS o JOIN troupe.deadlines AS d ON d.id = o.id WHERE d.fired_at >= d.due_at"))
	require.Zero(t, s.count(`
		SELECT count(*) FROM (
			SELECT d.due_at, lag(d.due_at) OVER (ORDER BY o.position) AS before FROM troupe.outbox AS o JOIN troupe.deadlines AS d ON d.id = o.id) AS x
		WHERE due_at < before`), "overtaken")
	testkit.Wait(t, "all told", func() (bool, error) { return fired[0].Load()+fired[1].Load() == n, nil })
	t.Logf("fired by the one %d, by the other %d", fired[0].Load(), fired[1].Load())
}

// pending inserts n deadlines, due one after the other within a while from now.
func (s *stage) pending(n int, from, within time.Duration) {
	s.t.Helper()
	_, err := s.pool.Exec(context.Background(), `
		INSERT INTO troupe.deadlines (consumer_group, scope, name, id, due_at, key, type, headers, payload)
		SELECT $1, 'k-' || n, $2, troupe.uuidv7(), clock_timestamp() + make_interval(secs => $4 + $5 * random()), 'k-' || n, 'Overdue',
			jsonb_build_object($6::text, $1 || '/' || $2, $7::text, 'k-' || n), convert_to('{"n":' || n || '}', 'UTF8')
		FROM generate_series(1, $3) AS n`,
		s.hop.String(), overdueName, n, from.Seconds(), within.Seconds(), participant.HeaderDeadline, participant.HeaderDeadlineScope)
	require.NoError(s.t, err)
}

// TestAKillOfAMemberFiresEachDeadlineOnce kills a member right after it fired, in the middle of the statement, and at each
// step of the handling.
func TestAKillOfAMemberFiresEachDeadlineOnce(t *testing.T) {
	t.Parallel()
	const n = 50
	for _, point := range []string{"after firing", "before the handler", "before the commit", "after the commit"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			s := newDeadlineStage(t)
			s.provision(2)
			s.relayed()
			s.pending(n, 0, time.Second)
			nth := int64(2)
			if point == "after firing" {
				nth = 1 // all may be due when a slow member has started, and fire at once
			}
			s.member(point, nth).killed(t)
			second := s.member("", 0)
			s.waitMet(n)
			second.terminate(t)
			require.Equal(t, n, s.count("SELECT count(DISTINCT n) FROM met"))
		})
	}
	t.Run("while firing", func(t *testing.T) {
		t.Parallel()
		s := newDeadlineStage(t)
		s.provision(2)
		s.pending(n, -time.Second, 0)
		tx, err := s.pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "LOCK TABLE troupe.outbox IN SHARE MODE")
		require.NoError(t, err)
		first := s.member("", 0)
		s.waitCount(1, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%fired%'")
		require.NoError(t, first.Process.Kill())
		<-first.ended
		second := s.member("", 0)
		testkit.Wait(t, memberUp, func() (bool, error) { return strings.Contains(second.log.String(), memberUp), nil })
		require.NoError(t, tx.Commit(t.Context()))
		s.relayed()
		s.waitMet(n)
		second.terminate(t)
		require.Equal(t, n, s.count("SELECT count(DISTINCT n) FROM met"))
	})
}

// TestAnOutageDelaysDeadlines tests an outage at the start and a later one.
func TestAnOutageDelaysDeadlines(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	s.provision(1)
	var way network
	way.set(true)
	p := s.expecting(func(c *participant.Config) { c.Pool = s.through(&way) })
	s.start(p)
	waitFor(t, "not ready", func() bool { return strings.Contains(fmt.Sprint(p.Ready()), "database") })
	require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Key: "a", Body: Overdue{}}))
	way.set(false)
	s.fired(1)
	way.set(true)
	require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Key: "b", Body: Overdue{}}))
	way.set(false)
	s.fired(2)
}

func TestReadySaysThatDeadlinesAreNotFired(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	s.provision(1)
	p := s.expecting()
	rename := func(from, to string) {
		_, err := s.pool.Exec(t.Context(), "ALTER TABLE troupe."+from+" RENAME TO "+to)
		require.NoError(t, err)
	}
	unfired := func() bool { return strings.Contains(fmt.Sprint(p.Ready()), "deadlines are not fired") }
	rename("deadlines", "away") // before it has looked for deadlines without a handler
	s.start(p)
	waitFor(t, "not ready from the start", unfired)
	rename("away", "deadlines")
	waitFor(t, "ready", func() bool { return p.Ready() == nil })
	rename("deadlines", "away") // while it fires
	waitFor(t, "not ready", unfired)
	rename("away", "deadlines")
	waitFor(t, "ready again", func() bool { return p.Ready() == nil })
}
