package containers_test

import (
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"

	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/testkit/containers"
	"github.com/troupe-go/troupe/topics"
)

// ChargePayment is the command of an order, PaymentCharged its answer.
type ChargePayment struct {
	OrderID string `json:"order_id"`
}

type PaymentCharged struct {
	OrderID string `json:"order_id"`
}

// TestACommandAndItsAnswerGoThroughTwoRelays writes a command in the database of the order, lets a participant of the payment
// answer it, and reads the answer from Kafka. Then it does so again with a relay that was stopped meanwhile.
func TestACommandAndItsAnswerGoThroughTwoRelays(t *testing.T) {
	needDocker(t)
	s := containers.New(t, containers.Config{
		Databases: []string{"order", "payment"}, Registry: true, Images: containers.Images{Relay: os.Getenv("TROUPE_RELAY_IMAGE")},
	})

	pool := connect(t, s, "payment")
	_, err := pool.Exec(t.Context(), "CREATE TABLE payments (order_id text PRIMARY KEY)")
	require.NoError(t, err)
	hop := topics.MustHop("order", "payment")
	p, err := participant.New(participant.Config{Pool: pool, Brokers: s.Brokers(), Hop: hop, Log: testkit.Logger(t)})
	require.NoError(t, err)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[ChargePayment]) (participant.Outcome, error) {
		_, err := tx.Exec(ctx, "INSERT INTO payments VALUES ($1)", c.Body.OrderID)
		return participant.Succeed(PaymentCharged(c.Body)), err
	})
	serving, leave := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- p.Run(serving) }()
	defer func() {
		leave()
		require.NoError(t, <-served)
	}()
	testkit.Wait(t, "the participant", func() (bool, error) { return p.Ready() == nil, p.Ready() })

	out, err := outbox.New(outbox.Config{})
	require.NoError(t, err)
	orders := connect(t, s, "order")
	order := func(id string) {
		require.NoError(t, pgx.BeginFunc(t.Context(), orders, func(tx pgx.Tx) error {
			return out.Write(t.Context(), tx, outbox.Entry{Topic: hop.Commands(), Key: id, Body: ChargePayment{OrderID: id}})
		}))
	}
	answers := testkit.Consume(t, s.Brokers(), hop.Events())
	order("o-1")
	answers.WaitN(1)

	stop := time.Minute
	require.NoError(t, s.Relay("order").Stop(t.Context(), &stop))
	order("o-2")
	require.NoError(t, s.Relay("order").Start(t.Context()))
	var got []string
	for _, r := range answers.WaitN(2) {
		var body PaymentCharged
		require.NoError(t, json.Unmarshal(r.Value, &body))
		got = append(got, body.OrderID)
	}
	require.ElementsMatch(t, []string{"o-1", "o-2"}, got)
	require.Contains(t, s.RegistryURL(), "/apis/ccompat/")
}

// needDocker skips the test if no engine answers, unless TROUPE_DOCKER says that one must.
func needDocker(t *testing.T) {
	t.Helper()
	if os.Getenv("TROUPE_DOCKER") == "" {
		testcontainers.SkipIfProviderIsNotHealthy(t)
	}
}

func connect(t *testing.T, s *containers.Stack, database string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), s.DatabaseURL(database))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}
