package participant_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/topics"
)

// TestUsedUpAttemptsBecomeADeadLetter checks all four parts of it, and the bytes.
func TestUsedUpAttemptsBecomeADeadLetter(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(onePartition)
	participant.Handle(p, count)
	s.provision(1)
	s.start(p)
	bad := s.command("a", Count{N: 1, Fail: "error"})
	bad.SagaID = "s-1"
	bad.Extra = []envelope.Header{
		{Key: "x", Value: []byte{0, 0xff}}, {Key: "x", Value: nil}, {Key: "y", Value: []byte{}},
		{Key: deadletter.HeaderClass, Value: []byte("from an earlier life")},
	}
	s.send(bad, s.command("a", Count{N: 2}))

	events := s.waitEvents(2)
	require.Equal(t, envelope.Exhausted, events[0].Outcome)
	require.Equal(t, "a", string(events[0].Key))
	require.Equal(t, "flow-a", events[0].CorrelationID)
	require.Equal(t, bad.ID, events[0].CausationID)
	require.Equal(t, bad.IdempotencyKey, events[0].IdempotencyKey)
	require.Equal(t, "s-1", events[0].SagaID)
	var body participant.Exhausted
	require.NoError(t, envelope.JSONCodec{}.Decode(events[0], &body))
	require.Equal(t, participant.Exhausted{
		DeadLetterID: body.DeadLetterID, Type: "Count", Handler: s.hop.String() + "/Count", Class: "transient",
		Error: errAsked.Error(), Attempts: 4,
	}, body)
	require.Equal(t, envelope.Success, events[1].Outcome, "the key goes on")

	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters"))
	require.Equal(t, 1, s.count(`
		SELECT count(*) FROM troupe.dead_letters
		WHERE id = $1 AND error_class = 'transient' AND attempts = 4 AND message_id = $2 AND message_type = 'Count'
		  AND correlation_id = 'flow-a' AND key = 'a' AND payload = $3 AND headers = $4 AND "offset" = 0 AND status = 'open'
		  AND first_failed_at < last_failed_at`,
		body.DeadLetterID, bad.ID, bad.Payload, envelope.MarshalHeaders(bad.Headers())))

	copies := s.entries(s.hop.DeadLetters())
	require.Len(t, copies, 1)
	require.Equal(t, bad.Payload, copies[0].Payload)
	require.Equal(t, bad.Key, copies[0].Key)
	require.Equal(t, bad.Extra[:3], copies[0].Extra[:3], "binary and repeated headers survive")
	ours := map[string]string{}
	for _, h := range copies[0].Extra[3:] {
		require.NotContains(t, ours, h.Key, "replaced, never appended")
		ours[h.Key] = string(h.Value)
	}
	require.NotEmpty(t, ours["__troupe.dlq.first.failed"])
	require.NotEmpty(t, ours["__troupe.dlq.last.failed"])
	delete(ours, "__troupe.dlq.first.failed")
	delete(ours, "__troupe.dlq.last.failed")
	require.Equal(t, map[string]string{
		"__dlq.errors.topic": s.hop.Commands(), "__dlq.errors.partition": "0", "__dlq.errors.offset": "0",
		"__dlq.errors.group": s.hop.String(), "__dlq.errors.delivery.count": "4", "__dlq.errors.message": "as asked",
		"__troupe.dlq.id": body.DeadLetterID, "__troupe.dlq.message.id": bad.ID, "__troupe.dlq.class": "transient",
		"__troupe.dlq.handler": s.hop.String() + "/Count", "__troupe.dlq.redrives": "0",
	}, ours)
	own := copies[0]
	own.Extra, own.Topic = nil, bad.Topic
	want := bad
	want.Extra, want.Time = nil, own.Time
	require.Equal(t, want, own, "attributes are the message's own")
}

// noAnswer has a method that a nil pointer cannot call.
type noAnswer struct{ Total int }

func (a noAnswer) MessageType() string { return "NoAnswer" }

// noError is an error of which a nil pointer has no text.
type noError struct{ text string }

func (e *noError) Error() string { return e.text }

func TestErrorsAreClassified(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fail, class string
		attempts    int
	}{
		{"error", "transient", 4},
		{"permanent", "permanent", 1},
		{"nothing", "permanent", 1},
		{"panic", "panic", 4},
		{"hang", "timeout", 4},
		{"violate", "permanent", 1},
		{"swallow", "transient", 4},
		{"huge", "permanent", 1},
		{"unencodable", "permanent", 1},
		{"panicking answer", "panic", 4},
		{"panicking error", "panic", 4},
	} {
		t.Run(c.fail, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			p := s.new()
			if c.fail == "hang" {
				p = s.new(func(c *participant.Config) { c.Timeout = time.Second }) // the other message has four tries within it
			}
			participant.Handle(p, func(ctx context.Context, tx pgx.Tx, m participant.Command[Count]) (participant.Outcome, error) {
				outcome, err := count(ctx, tx, m)
				switch m.Body.Fail {
				case "violate":
					_, err = tx.Exec(ctx, "INSERT INTO counters (key, total) VALUES ('b', NULL)")
				case "swallow":
					_, _ = tx.Exec(ctx, "SELECT no_such_column")
				case "huge":
					outcome = participant.Succeed(Count{Fail: strings.Repeat("x", 1_000_000)})
				case "unencodable":
					outcome = participant.Succeed(struct{ C chan int }{})
				case "panicking answer":
					var none *noAnswer
					outcome = participant.Succeed(none)
				case "panicking error":
					var none *noError
					err = none
				}
				return outcome, err
			})
			s.start(p)
			s.send(s.command("a", Count{N: 1, Fail: c.fail}), s.command("a", Count{N: 2}))
			events := s.waitEvents(2)
			require.Equal(t, []envelope.Outcome{envelope.Exhausted, envelope.Success}, []envelope.Outcome{events[0].Outcome, events[1].Outcome})
			require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters WHERE error_class = $1 AND attempts = $2", c.class, c.attempts))
			require.Equal(t, 1, s.count("SELECT total FROM counters"), "what failed has left nothing")
		})
	}
}

// TestPoisonNeverReachesTheHandler checks that an unreadable message is stored byte for byte.
func TestPoisonNeverReachesTheHandler(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(onePartition, atOnce)
	participant.Handle(p, count)
	s.provision(1)
	s.start(p)
	garbage := s.command("a", Count{})
	garbage.Payload = []byte{0, 0xff, 0xfe, '{'}
	unknown := s.command("a", Count{N: 1})
	unknown.Type = "Nobody\x00Knows"
	headers := kafka.Record(s.command("a", Count{N: 1}))
	for range envelope.MaxHeaders {
		headers.Headers = append(headers.Headers, kgo.RecordHeader{Key: "h", Value: []byte{0xff}})
	}
	bare := &kgo.Record{Topic: s.hop.Commands(), Value: []byte("no headers at all")}
	huge := kafka.Record(garbage)
	huge.Headers[1].Value = []byte(envelope.NewID())
	huge.Value = append([]byte{0xff}, bytes.Repeat([]byte("x"), 1_000_000)...)
	odd := kafka.Record(garbage)
	odd.Headers[1].Value = []byte("no uuid, with a \x00")
	tombstone := &kgo.Record{Topic: s.hop.Commands(), Key: []byte{0xff, 0x00}}
	all := []*kgo.Record{kafka.Record(garbage), kafka.Record(unknown), headers, bare, huge, odd, tombstone}
	s.produce(all...)
	s.send(s.command("a", Count{N: 1}))

	s.waitCount(1, "SELECT count(*) FROM done")
	s.waitCount(len(all), "SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'poison' AND attempts = 1") // of other keys too
	copies := make(map[int]envelope.Message)
	for _, m := range s.entries(s.hop.DeadLetters()) {
		offset, err := strconv.Atoi(header(m, deadletter.HeaderErrorsOffset))
		require.NoError(t, err)
		copies[offset] = m
	}
	require.Len(t, copies, len(all))
	for i, r := range all {
		var hs, payload, key []byte
		require.NoError(t, s.pool.QueryRow(t.Context(), `
			SELECT headers, payload, key FROM troupe.dead_letters WHERE "offset" = $1`, i).Scan(&hs, &payload, &key))
		require.Equal(t, r.Value, payload)
		require.Equal(t, r.Key, key)
		want := envelope.MarshalHeaders(kafka.Headers(r))
		require.True(t, bytes.Equal(want, hs))
		switch r {
		case headers:
			require.Equal(t, "headers,payload", header(copies[i], deadletter.HeaderOmitted))
			require.Nil(t, copies[i].Payload)
		case huge:
			require.Equal(t, "payload", header(copies[i], deadletter.HeaderOmitted))
			require.Nil(t, copies[i].Payload)
		default:
			require.Equal(t, r.Value, copies[i].Payload)
		}
	}
	require.Equal(t, garbage.ID, copies[0].ID)
	require.Equal(t, "no uuid, with a \x00", header(copies[5], deadletter.HeaderMessageID))
	outcomes := make(map[envelope.Outcome]int)
	for _, e := range s.entries(s.hop.Events()) {
		outcomes[e.Outcome]++
		require.NoError(t, uuid.Validate(e.ID))
	}
	require.Equal(t, map[envelope.Outcome]int{envelope.Exhausted: len(all), envelope.Success: 1}, outcomes)
	require.Equal(t, len(all)+1, s.count("SELECT count(DISTINCT id) FROM troupe.outbox WHERE topic = $1", s.hop.Events()))
}

func TestAnotherHopHearsOfDeadLetters(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	from := topics.MustHop(s.hop.Flow(), "shipping")
	heard := make(chan participant.Event[participant.Exhausted], 1)
	p := s.new()
	participant.On(p, from, func(_ context.Context, _ pgx.Tx, e participant.Event[participant.Exhausted]) error {
		heard <- e
		return nil
	})
	s.start(p)
	want := participant.Exhausted{DeadLetterID: "d", Type: "Ship", Handler: "h", Class: "panic", Error: "e", Attempts: 3}
	payload, err := json.Marshal(want)
	require.NoError(t, err)
	m := s.command("a", Count{})
	m.Topic, m.Type, m.Outcome, m.Payload = from.Events(), want.MessageType(), envelope.Exhausted, payload
	other := m
	other.ID, other.Type = envelope.NewID(), "NobodyHandlesThis"
	s.topic(from.Events())
	s.send(other, m)
	got := <-heard
	require.Equal(t, want, got.Body)
	require.Equal(t, m.ID, got.Message.ID)
	s.waitCount(1, "SELECT (SELECT count(*) FROM troupe.inbox) + (SELECT count(*) FROM troupe.inbox_recent)")
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"), "unknown events are passed over")
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox"), "an event asks for no answer")
}

// TestADeadLetterOfAnEventGoesToTheHopThatFailed checks that its topics belong to the hop whose handler failed.
func TestADeadLetterOfAnEventGoesToTheHopThatFailed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	from := topics.MustHop(s.hop.Flow(), "shipping")
	p := s.new()
	participant.On(p, from, func(context.Context, pgx.Tx, participant.Event[Counted]) error { return retry.Permanent(errAsked) })
	s.start(p)
	m := s.command("a", Count{})
	m.Topic, m.Type = from.Events(), "Counted"
	s.topic(from.Events())
	s.send(m)
	require.Equal(t, envelope.Exhausted, s.waitEvents(1)[0].Outcome)
	require.Equal(t, from.Events(), header(s.entries(s.hop.DeadLetters())[0], deadletter.HeaderErrorsTopic))
}

// TestTheDeadLetterOfAnEventAnswersNoStep checks an event that carries the saga and step of the command that it answers: its
// listener's failure is not about that step. A command's dead letter answers its step.
func TestTheDeadLetterOfAnEventAnswersNoStep(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	from := topics.MustHop(s.hop.Flow(), "order")
	p := s.new(onePartition)
	participant.On(p, from, func(context.Context, pgx.Tx, participant.Event[Counted]) error { return retry.Permanent(errAsked) })
	participant.Handle(p, count)
	s.provision(1)
	s.topic(from.Events())
	s.start(p)
	charge := s.command("a", Count{Fail: "permanent"})
	charge.SagaID, charge.SagaStep, charge.SagaOperation = "s", "charge", "forward"
	charged := charge
	charged.ID, charged.Topic, charged.Type, charged.Outcome = envelope.NewID(), from.Events(), "Counted", envelope.Success
	s.send(charged)
	e := s.waitEvents(1)[0]
	require.Equal(t, envelope.Exhausted, e.Outcome)
	require.Empty(t, e.SagaID+e.SagaStep+e.SagaOperation)
	require.Equal(t, charged.IdempotencyKey+"/payment", e.IdempotencyKey, "a key of its own: the event's is taken for the step's answer")
	require.Equal(t, charged.CorrelationID, e.CorrelationID)
	s.send(charge)
	e = s.waitEvents(2)[1]
	require.Equal(t, []any{envelope.Exhausted, "s", "charge", "forward", charge.IdempotencyKey},
		[]any{e.Outcome, e.SagaID, e.SagaStep, e.SagaOperation, e.IdempotencyKey})
}

func header(m envelope.Message, key string) string {
	for _, h := range m.Extra {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}
