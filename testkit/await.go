package testkit

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/participant"
)

// Await waits for the outcome event of a command and decodes it as a T. The test fails if the answer is another one, with its
// body, or if the command became a dead letter, with its error. Await[participant.Exhausted] waits for the dead letter's event.
func Await[T any](s *Stage, command envelope.Message) participant.Event[T] {
	s.t.Helper()
	var answer participant.Event[T]
	s.wait(fmt.Sprintf("the answer to %s %s", command.Type, command.ID), func() error {
		answers := s.answers(command)
		if len(answers) == 0 {
			return s.whereabouts(command)
		}
		answer.Message = answers[0]
		return nil
	})
	codec := s.cfg.Participant.Codec
	into := any(&answer.Body)
	if t := reflect.TypeFor[T](); t.Kind() == reflect.Pointer { // to a generated Protobuf message
		into = reflect.New(t.Elem()).Interface()
		answer.Body = into.(T)
	}
	want, err := codec.TypeOf(into)
	require.NoError(s.t, err)
	if want != answer.Message.Type {
		s.t.Fatalf("%s was answered with the %s event %s, want %s: %s", command.Type, answer.Message.Outcome,
			answer.Message.Type, want, printable(answer.Message.Payload))
	}
	require.NoError(s.t, codec.Decode(answer.Message, into))
	return answer
}

// answers returns the outcome events that a message has caused.
func (s *Stage) answers(m envelope.Message) (all []envelope.Message) {
	s.t.Helper()
	for _, e := range s.Entries(s.Hop.Events()) {
		if e.CausationID == m.ID && e.Outcome != envelope.None {
			all = append(all, e)
		}
	}
	return all
}

// whereabouts returns the reason why there is no answer yet.
func (s *Stage) whereabouts(m envelope.Message) error {
	for _, h := range s.held() {
		if h.identity == m.Identity() {
			return fmt.Errorf("it is held after %d attempts: %s", h.Attempts, h.Error)
		}
	}
	return fmt.Errorf("no answer, not held: was it sent, and to a hop that handles it?")
}

// Entries returns all messages that handlers have written for a topic, in their order, as a relay would publish them. No relay
// runs: they stay in the outbox.
func (s *Stage) Entries(topic string) (all []envelope.Message) {
	s.t.Helper()
	for _, m := range s.outbox() {
		if m.Topic == topic {
			all = append(all, m)
		}
	}
	return all
}

func (s *Stage) outbox() (all []envelope.Message) {
	s.t.Helper()
	s.eachEntry(func(_ int64, m envelope.Message) { all = append(all, m) })
	return all
}

// eachEntry calls do with each row of the outbox.
func (s *Stage) eachEntry(do func(position int64, m envelope.Message)) {
	s.t.Helper()
	rows, err := s.Pool.Query(s.t.Context(), "SELECT "+outboxrow.Columns+" FROM troupe.outbox ORDER BY position")
	require.NoError(s.t, err)
	var r outboxrow.Row
	_, err = pgx.ForEachRow(rows, r.Fields(), func() error {
		m, err := r.Message(outboxrow.Defaults{})
		do(r.Position, m)
		r = outboxrow.Row{}
		return err
	})
	require.NoError(s.t, err)
}

// A DeadLetter is a row of troupe.dead_letters.
type DeadLetter struct {
	ID       string // troupe.dead_letters.id
	Class    participant.Class
	Error    string // of the last attempt
	Attempts int    // number of failed runs
	Handler  string // group/type; the group alone if no handler matched
	Payload  []byte // the original one

	identity string
}

const selectDeadLetters = `
SELECT id::text, error_class, error, attempts, handler, payload, headers, message_id
FROM troupe.dead_letters
ORDER BY id DESC`

// AwaitDeadLetter waits until a message that was sent has become a dead letter. If it has to fail several times before, call
// Advance to skip the back-off.
func (s *Stage) AwaitDeadLetter(m envelope.Message) DeadLetter {
	s.t.Helper()
	var letter DeadLetter
	s.wait("the dead letter of "+m.ID, func() error {
		all := s.deadLetters()
		i := slices.IndexFunc(all, func(l DeadLetter) bool { return l.identity == m.Identity() })
		if i < 0 {
			return s.whereabouts(m)
		}
		letter = all[i]
		return nil
	})
	return letter
}

// deadLetters returns all dead letters, the newest first.
func (s *Stage) deadLetters() (all []DeadLetter) {
	s.t.Helper()
	rows, err := s.Pool.Query(s.t.Context(), selectDeadLetters)
	require.NoError(s.t, err)
	all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l DeadLetter, err error) {
		var headers []byte
		var id string
		err = row.Scan(&l.ID, &l.Class, &l.Error, &l.Attempts, &l.Handler, &l.Payload, &headers, &id)
		l.identity = identity(headers, id)
		return l, err
	})
	require.NoError(s.t, err)
	return all
}

// identity returns the identity of the message that was sent, from the headers of a row. unnamed is its id if they have none.
// Headers that cannot be read give a message without attributes.
func identity(headers []byte, unnamed string) string {
	var m envelope.Message
	if list, err := envelope.UnmarshalHeaders(headers); err != nil || m.SetHeaders(list) != nil {
		m = envelope.Message{}
	}
	if m.ID == "" {
		m.ID = unnamed
	}
	return m.Identity()
}

// Held is a message that has failed and waits in troupe.held for its next attempt, with all later messages of its key behind it.
type Held struct {
	Attempts int // made so far
	Class    participant.Class
	Error    string        // of the last attempt
	Wait     time.Duration // until the next attempt, by the database's clock; negative once it is due

	identity string
}

// AwaitHeld waits until a message has failed that many times, or more, and is held.
func (s *Stage) AwaitHeld(m envelope.Message, attempts int) (held Held) {
	s.t.Helper()
	s.wait(fmt.Sprintf("%d failed attempts of %s", attempts, m.ID), func() error {
		all := s.held()
		i := slices.IndexFunc(all, func(h Held) bool { return h.identity == m.Identity() })
		switch {
		case i < 0:
			return fmt.Errorf("it is not held")
		case all[i].Attempts < attempts:
			return fmt.Errorf("%d so far: %s", all[i].Attempts, all[i].Error)
		}
		held = all[i]
		return nil
	})
	return held
}

const selectHeld = `
SELECT message_id, headers, attempts, error_class, last_error,
       extract(epoch FROM next_try - clock_timestamp())::float8
FROM troupe.held
WHERE attempts > 0
ORDER BY position`

func (s *Stage) held() (all []Held) {
	s.t.Helper()
	rows, err := s.Pool.Query(s.t.Context(), selectHeld)
	require.NoError(s.t, err)
	var id string
	var headers []byte
	var h Held
	var wait float64
	fields := []any{&id, &headers, &h.Attempts, &h.Class, &h.Error, &wait}
	_, err = pgx.ForEachRow(rows, fields, func() error {
		h.Wait = time.Duration(wait * float64(time.Second))
		h.identity = identity(headers, id)
		all = append(all, h)
		return nil
	})
	require.NoError(s.t, err)
	return all
}

// Settle waits until the participant has consumed all sent messages: each one has taken effect, changed nothing, or is held or a
// dead letter. Use it to wait for a message without a visible effect, such as a duplicate.
func (s *Stage) Settle() {
	s.t.Helper()
	if len(s.sent) == 0 {
		return
	}
	admin := kadm.NewClient(s.client)
	s.wait("all that was sent to be consumed", func() error {
		ends, err := admin.ListEndOffsets(s.t.Context(), s.sentTopics()...)
		if err == nil {
			err = ends.Error()
		}
		if err != nil {
			return err
		}
		committed, err := admin.FetchOffsets(s.t.Context(), s.cfg.Participant.Group)
		if err != nil {
			return err
		}
		var left []string
		ends.Each(func(end kadm.ListedOffset) {
			var at int64
			if o, ok := committed.Lookup(end.Topic, end.Partition); ok {
				at = max(o.At, 0)
			}
			if at < end.Offset {
				left = append(left, fmt.Sprintf("%s/%d is consumed up to %d of %d", end.Topic, end.Partition, at, end.Offset))
			}
		})
		if len(left) > 0 {
			return fmt.Errorf("%s", strings.Join(left, ", "))
		}
		return nil
	})
}

func (s *Stage) sentTopics() (names []string) {
	for name := range s.sent {
		names = append(names, name)
	}
	return names
}

// printable returns a payload for a test's log.
func printable(payload []byte) string {
	const limit = 500
	if len(payload) > limit {
		return fmt.Sprintf("%q and %d bytes more", payload[:limit], len(payload)-limit)
	}
	return fmt.Sprintf("%q", payload)
}
