package flow_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/short"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

func TestMain(m *testing.M) {
	short.Only(
		"Example", "ExampleOnMissed", "ExampleOnJoin", "TestADeclarationThatCannotBeKeptIsRefused", "TestEveryStatementFitsTheTables",
	)
	testkit.Main(m)
}

// These are the messages of the hops of an order.
type (
	Paid       struct{ Cents int }
	Declined   struct{ Reason string }
	Reserved   struct{ Titles int }
	Shipped    struct{ Cents, Titles int }
	Refused    struct{ Reason string }
	TimedOut   struct{ Missing []string }
	Notify     struct{ Text string }
	Undeclared struct{}
)

// quick is a retry policy for tests.
var quick = retry.Policy{Initial: 10 * time.Millisecond, Cap: 20 * time.Millisecond, Attempts: 3}

// events and commands return messages as a declaration names them.
func events(name, hop, typ string) flow.Message {
	return flow.Message{Topic: name + "." + hop + ".events", Type: typ}
}

func commands(name, hop, typ string) flow.Message {
	return flow.Message{Topic: name + "." + hop + ".commands", Type: typ}
}

// shipping declares a service that waits for payment and inventory, for an hour.
func shipping(name string) flow.Declaration {
	return flow.Declaration{
		Hop: name + ".shipping",
		Joins: []flow.Join{{
			Name: "ready", Await: []flow.Message{events(name, "payment", "Paid"), events(name, "inventory", "Reserved")},
			Within: "1h", Success: []flow.Message{events(name, "shipping", "Shipped")},
			Expired: []flow.Message{events(name, "shipping", "TimedOut")},
			Broken:  []flow.Message{events(name, "payment", "Declined")},
		}},
	}
}

// ship writes a row that a second run would duplicate.
func ship(ctx context.Context, tx pgx.Tx, j flow.Joined) (participant.Outcome, error) {
	paid, err := flow.Read[Paid](j)
	if err != nil {
		return participant.Outcome{}, err
	}
	reserved, err := flow.Read[Reserved](j)
	if err != nil {
		return participant.Outcome{}, err
	}
	_, err = tx.Exec(ctx, "INSERT INTO shipments (order_id) VALUES ($1)", j.Key)
	return participant.Succeed(Shipped{Cents: paid.Cents, Titles: reserved.Titles}), err
}

func tooLate(_ context.Context, _ pgx.Tx, j flow.Joined) (participant.Outcome, error) {
	return participant.Refuse(TimedOut{Missing: j.Missing}), nil
}

const shipments = "CREATE TABLE shipments (order_id text)"

// bind returns a service of a stage's participant. It fails the test if the declaration is wrong.
func bind(t testing.TB, p *participant.Participant, declared flow.Declaration) *flow.Service {
	t.Helper()
	s, err := flow.New(flow.Config{Participant: p, Declared: declared, Log: testkit.Logger(t)})
	require.NoError(t, err)
	return s
}

// shippingStage returns a stage with the service above.
func shippingStage(t testing.TB, change ...func(*testkit.StageConfig)) testkit.StageConfig {
	cfg := testkit.StageConfig{
		Hop: "shipping", SQL: shipments, Participant: participant.Config{Retry: quick},
		Handlers: func(s *testkit.Stage, p *participant.Participant) {
			flow.OnJoin(bind(t, p, shipping(s.Hop.Flow())), "ready", flow.Ends{Complete: ship, Expired: tooLate})
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	return cfg
}

// event returns a message of another hop of the stage's flow.
func event(s *testkit.Stage, hop, key string, body any) envelope.Message {
	return s.Event(topics.MustHop(s.Hop.Flow(), hop), key, body)
}

func failure(s *testkit.Stage, hop, key string, body any) envelope.Message {
	m := event(s, hop, key, body)
	m.Outcome = envelope.Failure
	return m
}

// said returns the messages that the stage's hop has written, as type and payload.
func said(s *testkit.Stage) (all []string) {
	for _, m := range s.Entries(s.Hop.Events()) {
		all = append(all, fmt.Sprintf("%s %s %s %s", m.Outcome, m.Key, m.Type, m.Payload))
	}
	return all
}

func count(t testing.TB, s *testkit.Stage, sql string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, s.Pool.QueryRow(t.Context(), sql, args...).Scan(&n))
	return n
}
