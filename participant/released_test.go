package participant_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/topics"
)

// exhausted holds all rows and messages of a dead letter, apart from its own id and the times.
type exhausted struct {
	row         map[string]any
	copy, event envelope.Message
	identities  []string
}

// readExhausted reads them, and deletes everything from the database for the next one.
func (s *stage) readExhausted() (e exhausted) {
	s.t.Helper()
	rows, err := s.pool.Query(s.t.Context(), "SELECT * FROM troupe.dead_letters")
	require.NoError(s.t, err)
	all, err := pgx.CollectRows(rows, pgx.RowToMap)
	require.NoError(s.t, err)
	require.Len(s.t, all, 1)
	e.row = all[0]
	id := s.text("SELECT id::text FROM troupe.dead_letters")
	for _, column := range []string{"id", "created_at", "first_failed_at", "last_failed_at"} {
		delete(e.row, column)
	}
	copies, events := s.entries(s.hop.DeadLetters()), s.entries(s.hop.Events())
	require.Len(s.t, copies, 1)
	require.Len(s.t, events, 1)
	e.copy, e.event = copies[0], events[0]
	for i, h := range e.copy.Extra {
		switch h.Key {
		case deadletter.HeaderDeadLetterID:
			require.Equal(s.t, id, string(h.Value))
			e.copy.Extra[i].Value = nil
		case deadletter.HeaderFirstFailed, deadletter.HeaderLastFailed:
			_, err := time.Parse(time.RFC3339Nano, string(h.Value))
			require.NoError(s.t, err)
			e.copy.Extra[i].Value = nil
		}
	}
	var body participant.Exhausted
	require.NoError(s.t, envelope.JSONCodec{}.Decode(e.event, &body))
	require.Equal(s.t, id, body.DeadLetterID)
	body.DeadLetterID = ""
	e.event.Payload = marshal(body)
	e.copy.Time, e.event.Time = time.Time{}, time.Time{}
	rows, err = s.pool.Query(s.t.Context(), `
		SELECT concat_ws(' ', consumer_group, message_id, redrive) FROM troupe.inbox
		UNION SELECT concat_ws(' ', consumer_group, id, redrive) FROM troupe.inbox_recent
		ORDER BY 1`)
	require.NoError(s.t, err)
	e.identities, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(s.t, err)
	_, err = s.pool.Exec(s.t.Context(), forget+`; DELETE FROM troupe.dead_letters; DELETE FROM troupe.outbox; DELETE FROM troupe.held;
		DELETE FROM troupe.inbox_offsets; DELETE FROM troupe.leases`)
	require.NoError(s.t, err)
	return e
}

func (s *stage) text(sql string) (text string) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), sql).Scan(&text))
	return text
}

// TestAReleasedMessageBecomesTheDeadLetterThatItsParticipantWouldWrite compares them, field by field, for every kind of
// handler: the same record becomes a dead letter of its participant after one attempt, and then, in a database without its
// rows, of an operator.
func TestAReleasedMessageBecomesTheDeadLetterThatItsParticipantWouldWrite(t *testing.T) {
	t.Parallel()
	fails := func() error { return errAsked }
	for name, register := range map[string]func(p *participant.Participant, order topics.Hop){
		"Handle": func(p *participant.Participant, _ topics.Hop) {
			participant.Handle(p, func(context.Context, pgx.Tx, participant.Command[Count]) (participant.Outcome, error) {
				return participant.Outcome{}, fails()
			})
		},
		"Ask": func(p *participant.Participant, _ topics.Hop) {
			participant.Ask(p, "Count", func(context.Context, participant.Command[[]byte]) (int, error) { return 0, fails() },
				func(context.Context, pgx.Tx, participant.Command[[]byte], int) (participant.Outcome, error) {
					return participant.Succeed(Counted{}), nil
				})
		},
		"OnDeadline": func(p *participant.Participant, _ topics.Hop) {
			participant.OnDeadline(p, "late", func(context.Context, pgx.Tx, participant.Due[Count]) error { return fails() })
		},
		"On": func(p *participant.Participant, order topics.Hop) {
			participant.On(p, order, func(context.Context, pgx.Tx, participant.Event[Count]) error { return fails() })
		},
		"React": func(p *participant.Participant, order topics.Hop) {
			participant.React(p, order, func(context.Context, pgx.Tx, participant.Event[Count]) (participant.Outcome, error) {
				return participant.Outcome{}, fails()
			})
		},
		"OnAll": func(p *participant.Participant, order topics.Hop) {
			participant.OnAll(p, []topics.Hop{order}, func(context.Context, pgx.Tx, []participant.Taken) error { return fails() })
		},
		"Observe": func(p *participant.Participant, order topics.Hop) {
			p.Observe(order.Events(), "Count", func(context.Context, pgx.Tx, envelope.Message) error { return fails() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			order := topics.MustHop(s.hop.Flow(), "order")
			group := "till-" + s.hop.Flow() // which does not contain the hop
			config := func(attempts int) func(*participant.Config) {
				return func(c *participant.Config) {
					c.Partitions, c.Immediate, c.Source = 1, -1, "the till"
					c.Group = group
					c.SpringHeaders, c.ConnectHeaders = true, true
					c.Retry = retry.Policy{Initial: time.Hour, Cap: time.Hour, NoJitter: true, Attempts: attempts}
				}
			}
			s.provision(1)
			s.topic(order.Events())
			m := s.command("\xff\x00", Count{N: 1})
			m.SagaID, m.SagaStep, m.SagaOperation, m.TraceParent = "s", "charge", "forward", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
			m.Subject, m.CorrelationID = "", ""
			m.Extra = []envelope.Header{
				{Key: "x", Value: []byte{0, 0xff}}, {Key: deadletter.HeaderClass, Value: []byte("from an earlier life")},
				{Key: "kafka_dlt-original-topic", Value: []byte("from an earlier life")},
				{Key: deadletter.HeaderRedrive, Value: []byte("3")}, {Key: deadletter.HeaderRedriveGroup, Value: []byte("another")},
			}
			switch name {
			case "Handle", "Ask":
			case "OnDeadline":
				m.SagaID, m.SagaStep, m.SagaOperation, m.IdempotencyKey = "", "", "", ""
				m.Extra = append(m.Extra, envelope.Header{Key: participant.HeaderDeadline, Value: []byte(group + "/late")},
					envelope.Header{Key: participant.HeaderDeadlineScope, Value: []byte("o-1")})
				_, err := s.pool.Exec(t.Context(), `
					INSERT INTO troupe.deadlines (consumer_group, scope, name, id, due_at, key_bytes, type, headers, payload, fired_at)
					VALUES ($1, 'o-1', 'late', $2, now(), $3, 'Count', '{}', $4, now())`, group, m.ID, m.Key, m.Payload)
				require.NoError(t, err)
			default:
				m.Topic, m.Outcome = order.Events(), envelope.Success
				m.Extra = m.Extra[:3] // an event that was redriven for another group is skipped
			}
			require.NoError(t, s.client.ProduceSync(t.Context(), kafka.Record(m)).FirstErr())

			first := s.new(config(1))
			register(first, order)
			stop := s.start(first)
			s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters")
			stop()
			want := s.readExhausted()
			s.rewindGroup(group)
			second := s.new(config(8))
			register(second, order)
			stop = s.start(second)
			s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts = 1")
			stop()

			desk, err := repair.New(repair.Config{Pool: s.pool})
			require.NoError(t, err)
			keys, _, err := desk.Held(t.Context(), repair.HeldFilter{}, repair.Page{})
			require.NoError(t, err)
			require.Len(t, keys, 1)
			_, err = desk.Release(t.Context(), keys[0].Place, repair.ReleaseConfig{By: admin.Actor{Name: "ann", Reason: "test"}})
			require.NoError(t, err)
			got := s.readExhausted()
			require.Equal(t, want.row, got.row)
			require.Equal(t, want.copy, got.copy)
			require.Equal(t, want.event, got.event)
			require.Equal(t, want.identities, got.identities)
			require.Equal(t, []string{fmt.Sprintf("%s %s 0", group, m.ID)}, got.identities, "redriven for another group")
			require.Equal(t, "the till", got.event.Source)
		})
	}
}
