package participant_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/participant"
)

// forged returns the message of a deadline as a sender of commands can make it, from its own command that scheduled the deadline, and from the
// names in the service's code. The deadline's id follows from them.
func (s *stage) forged(by envelope.Message, typ, payload string) envelope.Message {
	m := envelope.Message{
		Topic: s.hop.Commands(), Key: by.Key, Type: typ, Payload: []byte(payload), Source: "test", ContentType: envelope.JSON,
		Extra: []envelope.Header{
			{Key: ce.HeaderDeadline, Value: []byte(s.hop.String() + "/" + overdueName)}, {Key: ce.HeaderDeadlineScope, Value: by.Key},
		},
	}
	cause := envelope.Cause{Message: by, Handler: s.hop.String() + "/Count", At: time.Unix(uuid.MustParse(by.ID).Time().UnixTime())}
	cause.Apply(&m)
	return m
}

// TestASenderOfCommandsForgesNoDeadline: a service that may send commands to the hop knows the id of the deadline that its command has scheduled, and
// sends the deadline's message before it is due, with another body, with the key of another, and as if it was redriven.
func TestASenderOfCommandsForgesNoDeadline(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	s.provision(1)
	late := make(chan participant.Delivery, 20)
	p := s.new(onePartition, func(c *participant.Config) { c.Hooks.Late = func(d participant.Delivery) { late <- d } })
	participant.OnDeadline(p, overdueName, overdue)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		after := time.Duration(0)
		if c.Body.Fail == "later" {
			after = time.Hour
		}
		return participant.Succeed(Counted{N: c.Body.N}), p.Schedule(ctx, tx, participant.Deadline{Name: overdueName, After: after, Body: Overdue{N: c.Body.N}})
	})
	s.start(p)
	refused := func(m envelope.Message) {
		t.Helper()
		s.send(m)
		require.Equal(t, m.ID, (<-late).Message.ID)
	}

	pending := s.command("a", Count{N: 1, Fail: "later"})
	s.send(pending)
	s.waitEvents(1)
	early := s.forged(pending, "Overdue", `{"n":1}`)
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.deadlines WHERE id = $1", early.ID), "the id is no secret")
	refused(early)

	due := s.command("b", Count{N: 2})
	s.send(due)
	fired := s.fired(1)[0]
	another := s.forged(due, "Overdue", `{"n":666}`)
	require.Equal(t, fired.ID, another.ID)
	refused(another)
	again := another
	again.Extra = append(again.Extra, envelope.Header{Key: deadletter.HeaderRedrive, Value: []byte("1")})
	refused(again)
	encoded := another
	encoded.ContentType = envelope.Avro
	refused(encoded)
	ofOther := s.forged(due, "Overdue", `{"n":2}`)
	ofOther.Key = []byte("a")
	refused(ofOther)
	require.Zero(t, s.count("SELECT count(*) FROM met"))

	s.send(fired)
	s.waitCount(1, "SELECT count(*) FROM met")
	require.Equal(t, 1, s.count("SELECT count(*) FROM met WHERE n = 2 AND key = 'b'"))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.deadlines"), "the one that is not due")
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
	require.Empty(t, late)
}

// TestAForgedMessageWithTheIDOfADeadlineSwallowsNoDeadline: messages that a sender of commands makes with the id of a deadline come right before the
// deadline's own message, in one batch with it and in an earlier one: as the deadline with another body, and as a command.
func TestAForgedMessageWithTheIDOfADeadlineSwallowsNoDeadline(t *testing.T) {
	t.Parallel()
	for name, batch := range map[string]int{"in a batch": 100, "one by one": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDeadlineStage(t)
			s.provision(1)
			p := s.new(onePartition, func(c *participant.Config) { c.Batch = batch })
			participant.OnDeadline(p, overdueName, overdue)
			participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
				if c.Body.N == 666 {
					return participant.Succeed(Counted{}), nil
				}
				return participant.Succeed(Counted{N: c.Body.N}), p.Schedule(ctx, tx, participant.Deadline{Name: overdueName, Body: Overdue{N: c.Body.N}})
			})
			s.start(p)
			first, second := s.command("a", Count{N: 1}), s.command("b", Count{N: 2})
			s.send(first, second)
			fired := s.fired(2)
			byKey := map[string]envelope.Message{string(fired[0].Key): fired[0], string(fired[1].Key): fired[1]}
			command := s.command("b", Count{N: 666})
			command.ID = byKey["b"].ID
			s.send(s.forged(first, "Overdue", `{"n":666}`), byKey["a"], command, byKey["b"], byKey["a"], byKey["b"])
			s.waitCount(2, "SELECT count(*) FROM met")
			done := s.command("c", Count{N: 3})
			s.send(done)
			s.waitCount(1, "SELECT count(*) FROM troupe.deadlines")
			require.Equal(t, 2, s.count("SELECT count(*) FROM met WHERE n IN (1, 2)"))
			require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
		})
	}
}

// TestAForgedDeadlineOfAnyNameStopsNoOther: a message that looks like a deadline of a name that no text column can hold has the id of a message that
// was handled. It is a duplicate, and its partition, or the local work of its group, goes on.
func TestAForgedDeadlineOfAnyNameStopsNoOther(t *testing.T) {
	t.Parallel()
	names := []string{"\xff", "a\x00b", strings.Repeat("x", 5000), ""}
	for _, local := range []bool{false, true} {
		t.Run(map[bool]string{false: "Kafka", true: "local work"}[local], func(t *testing.T) {
			t.Parallel()
			s := newDeadlineStage(t)
			p := s.new(onePartition, atOnce, func(c *participant.Config) {
				if c.Local = local; local {
					c.Brokers = nil
				}
			})
			participant.OnDeadline(p, overdueName, overdue)
			participant.Handle(p, count)
			if local {
				s.makeLocal()
			} else {
				s.provision(1)
			}
			s.start(p)
			send := func(m envelope.Message) {
				if !local {
					s.send(m)
					return
				}
				s.exec("INSERT INTO troupe.outbox (id, topic, key, type, raw_headers, payload) VALUES ($1, $2, $3, $4, $5, $6)",
					m.ID, m.Topic, string(m.Key), m.Type, envelope.MarshalHeaders(m.Extra), m.Payload)
			}
			handled := s.command("odd", Count{N: 1})
			send(handled)
			s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'odd'")
			for n, name := range names {
				forged := s.command("odd", Count{N: n + 2})
				forged.ID = handled.ID
				forged.Extra = []envelope.Header{{Key: ce.HeaderDeadline, Value: []byte(s.hop.String() + "/" + name)}}
				send(forged)
			}
			send(s.command("odd", Count{N: 100}))
			send(s.command("other", Count{N: 1}))
			s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'other'")
			s.waitCount(2, "SELECT count(*) FROM done WHERE key = 'odd'")
			require.NoError(t, p.Ready())
		})
	}
}
