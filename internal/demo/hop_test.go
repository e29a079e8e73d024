package demo_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/messages"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// porter is the smallest service: it creates a table and accepts every order.
var porter = demo.Hop{
	Name:   "shipping",
	Schema: "CREATE TABLE IF NOT EXISTS parcels (order_id text)",
	Handle: func(p *participant.Participant) {
		participant.Handle(p, func(context.Context, pgx.Tx, participant.Command[messages.ShipOrder]) (participant.Outcome, error) {
			return participant.Succeed(messages.OrderShipped{}), nil
		})
	},
}

func config(t *testing.T) demo.Config {
	t.Helper()
	return demo.Config{
		DatabaseURL: testkit.EmptyDatabase(t), Brokers: testkit.Kafka(t), Registry: testkit.Registry(t),
		Flow: testkit.Flow(t), Listen: freePort(t), Log: testkit.Logger(t),
	}
}

// freePort returns an address with a port below the ephemeral range, so that no other program gets it before the service listens.
func freePort(t *testing.T) (address string) {
	t.Helper()
	testkit.Wait(t, "a free port", func() (bool, error) {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(10_000)))
		if err != nil {
			return false, err
		}
		address = l.Addr().String()
		return true, l.Close()
	})
	return address
}

// run starts the hop, and returns a function that stops it and waits for its end.
func run(t *testing.T, h demo.Hop, cfg demo.Config) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx, cfg) }()
	t.Cleanup(cancel)
	return func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(4 * time.Minute):
			return errors.New("still running four minutes after it was asked to stop")
		}
	}
}

func get(cfg demo.Config, path string) (status int, body string) {
	response, err := http.Get("http://" + cfg.Listen + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

func awaitReady(t *testing.T, cfg demo.Config) {
	t.Helper()
	testkit.Wait(t, "readiness", func() (bool, error) {
		status, _ := get(cfg, "/readyz")
		return status == http.StatusOK, nil
	})
}

func TestAServiceMakesItsTablesAndBecomesReady(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	stop := run(t, porter, cfg)
	awaitReady(t, cfg)
	status, _ := get(cfg, "/livez")
	require.Equal(t, http.StatusOK, status)
	status, _ = get(cfg, "/orders")
	require.Equal(t, http.StatusNotFound, status, "it has no API")
	status, body := get(cfg, "/metrics")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "troupe_ready{")
	for _, path := range []string{"/metrics", "/readyz", "/orders"} { // as a web page of another site may request
		rebound, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+cfg.Listen+path, nil)
		require.NoError(t, err)
		rebound.Host = "demo.evil.example"
		response, err := http.DefaultClient.Do(rebound)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusMisdirectedRequest, response.StatusCode, path)
	}

	conn, err := pgx.Connect(t.Context(), cfg.DatabaseURL)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), "SELECT FROM parcels, troupe.outbox")
	require.NoError(t, err)
	require.NoError(t, stop())
}

func TestTwoOfAServiceStartAtOnce(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	other := cfg
	other.Listen = freePort(t)
	stop, stopOther := run(t, porter, cfg), run(t, porter, other)
	awaitReady(t, cfg)
	awaitReady(t, other)
	require.NoError(t, stop())
	require.NoError(t, stopOther())
}

// A service that starts before its database waits: alive, not ready, and it can be stopped.
func TestAServiceWaitsForItsDatabase(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	url := cfg.DatabaseURL
	cfg.DatabaseURL = "postgres://nobody@127.0.0.1:1/none"
	stop := run(t, porter, cfg)
	testkit.Wait(t, "life", func() (bool, error) {
		status, _ := get(cfg, "/livez")
		return status == http.StatusOK, nil
	})
	status, body := get(cfg, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, "waiting for the database")
	require.NoError(t, stop())

	// The pool reaches the database at the third try.
	cfg.DatabaseURL, cfg.Listen = url, freePort(t)
	var dials atomic.Int32
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if dials.Add(1) < 3 {
			return nil, io.ErrUnexpectedEOF
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	stop = run(t, porter, cfg)
	awaitReady(t, cfg)
	require.NoError(t, stop())
}

func TestAnErrorThatNeedsAnOperatorEndsAService(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.DatabaseURL = testkit.Postgres(t).URL("there_is_none")
	require.ErrorContains(t, porter.Run(t.Context(), cfg), "there_is_none")

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	cfg = config(t)
	cfg.Listen = taken.Addr().String()
	require.ErrorContains(t, porter.Run(t.Context(), cfg), "address already in use")

	require.ErrorContains(t, porter.Run(t.Context(), demo.Config{}), "DATABASE_URL is not set")
}

func TestADeadLetterIsToldToTheWebhook(t *testing.T) {
	t.Parallel()
	bodies := make(chan string, 10)
	chat := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- string(body)
	}))
	defer chat.Close()
	cfg := config(t)
	cfg.AlertURL = chat.URL
	stop := run(t, porter, cfg)
	awaitReady(t, cfg)
	client, err := kafka.NewClient(cfg.Brokers)
	require.NoError(t, err)
	defer client.Close()
	topic := cfg.Hop("shipping").Commands()
	testkit.Topics(t, client, 4, topic)
	for n := range 20 {
		m := envelope.Message{
			Topic: topic, Key: []byte("o-1"), Payload: []byte{9}, ID: envelope.NewID(), Type: "troupe.order.ShipOrder", Subject: fmt.Sprint(n),
		}
		require.NoError(t, client.ProduceSync(t.Context(), kafka.Record(m)).FirstErr())
	}
	// The dead letters of a transaction come at once, before the first alert is sent.
	require.Regexp(t, `shipping: (dead letter|\d+ × dead letter since .* UTC, the last one): `+cfg.Flow+`\.shipping/troupe\.order\.ShipOrder: poison: `, <-bodies)
	require.NoError(t, stop())
	require.LessOrEqual(t, len(bodies), 1, "one cause is one alert, and its count at the end")
}
