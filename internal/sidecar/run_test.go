//go:build unix

package sidecar_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/testkit"
)

// site makes a migrated database, a broker and a topic, and returns the two required variables.
func site(t *testing.T) (environ []string, conn *pgx.Conn, topic string) {
	t.Helper()
	url := testkit.EmptyDatabase(t)
	brokers := testkit.Kafka(t)
	environ = []string{"DATABASE_URL=" + url, "KAFKA_BROKERS=" + strings.Join(brokers, ",")}
	r := run(t, environ, "migrate")
	require.Equal(t, 0, r.code, r.stderr)
	require.Contains(t, r.stdout, "is at version")
	pool, err := pgxpool.New(context.Background(), url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	role := grantstest.New(t, pool, grants.Relay, grants.RelayOperator)
	_, err = pool.Exec(t.Context(), "ALTER ROLE "+role.Name+" REPLICATION") // for wal, as in docs/security.md
	require.NoError(t, err)
	environ[0] = "DATABASE_URL=" + role.URL()
	conn, err = pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	topic = testkit.Flow(t) + ".payment.commands"
	client, err := kafka.NewClient(brokers)
	require.NoError(t, err)
	defer client.Close()
	testkit.Topics(t, client, 2, topic)
	return environ, conn, topic
}

func insert(t *testing.T, conn *pgx.Conn, topic, key string) {
	t.Helper()
	_, err := conn.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, $2, 'T', '{}')", topic, key)
	require.NoError(t, err)
}

// DATABASE_URL and KAFKA_BROKERS alone are enough.
func TestRunPublishesAndEndsWithZero(t *testing.T) {
	t.Parallel()
	environ, conn, topic := site(t)
	p := start(t, environ)
	require.Equal(t, "active", p.waitReady(http.StatusOK).Role)
	insert(t, conn, topic, "o-1")
	records := testkit.Consume(t, testkit.Kafka(t), topic).WaitN(1)
	m, err := kafka.Message(records[0])
	require.NoError(t, err)
	require.Equal(t, conn.Config().Database, m.Source, "the service's name is the database's unless set")

	standby := start(t, environ, "--service", "shop")
	require.Equal(t, "standby", standby.waitReady(http.StatusOK).Role)
	require.Equal(t, 0, standby.terminate())
	require.Equal(t, 0, p.terminate())
	for _, logged := range []*process{p, standby} {
		require.NotContains(t, logged.logs(), conn.Config().Password)
	}
	for line := range strings.SplitSeq(strings.TrimSpace(p.logs()), "\n") {
		require.True(t, json.Valid([]byte(line)), line)
	}
}

func TestCompressionIsASetting(t *testing.T) {
	t.Parallel()
	environ, conn, topic := site(t)
	p := start(t, environ, "--compression", "zstd")
	p.waitReady(http.StatusOK)
	_, err := conn.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'k', 'T', $2)",
		topic, bytes.Repeat([]byte("x"), 10_000))
	require.NoError(t, err)
	const zstd = 4 // the number in the record batch
	require.EqualValues(t, zstd, testkit.Consume(t, testkit.Kafka(t), topic).WaitN(1)[0].Attrs.CompressionType())
	require.Equal(t, 0, p.terminate())
	r := run(t, environ, "run", "--compression", "rar")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.stderr, "none or gzip or snappy or lz4 or zstd")
}

func TestTheAdminEndpoints(t *testing.T) {
	t.Parallel()
	environ, conn, topic := site(t)
	p := start(t, environ)
	p.waitReady(http.StatusOK)
	insert(t, conn, topic, "o-1")
	insert(t, conn, topic+"-none", "o-2")
	want := []string{
		"rows_published_total 1", "rows_deleted_total 1", "active 1", "ready 1", "paused 0",
		"lease_term 1", "lag_rows 1", "lag_bytes 2", "retrying_rows 1", "parked_rows 0",
		"publish_seconds_count 1", "rows_in_flight 0", "rows_parked_total 0",
		"headroom_positions 1.9", "lag_seconds ", "last_progress_timestamp_seconds ",
	}
	label := `{outbox="` + conn.Config().Database + `"}`
	testkit.Wait(t, "the metrics", func() (bool, error) {
		code, body, err := p.get("/metrics")
		if err != nil || code != http.StatusOK {
			return false, err
		}
		for _, line := range want {
			name, value, _ := strings.Cut(line, " ")
			line = "outbox_relay_" + name + label + " " + value
			if !strings.Contains(body, "\n"+line) {
				return false, &missing{line, body}
			}
		}
		return true, nil
	})
	require.Contains(t, p.logs(), `"version":"`)
	code, body, err := p.get("/status")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, code)
	var s struct {
		Ready    bool
		Outboxes []struct {
			Outbox string
			Relay  struct {
				Role      string
				Published int
			}
			Rows struct{ Pending, Retrying int }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(body), &s))
	require.True(t, s.Ready)
	require.Len(t, s.Outboxes, 1)
	require.Equal(t, "active", s.Outboxes[0].Relay.Role)
	require.Equal(t, 1, s.Outboxes[0].Relay.Published)
	require.Equal(t, 1, s.Outboxes[0].Rows.Retrying)

	r := run(t, nil, "healthcheck", "--admin", p.admin)
	require.Equal(t, 0, r.code, r.stderr)
	require.Equal(t, 0, p.terminate())
	require.Equal(t, 1, run(t, nil, "healthcheck", "--admin", p.admin).code)
}

type missing struct{ line, body string }

func (m *missing) Error() string { return "no " + m.line + " in\n" + m.body }

// Neither server is there: the relay runs, waits, reports it, and still ends at SIGTERM.
func TestRunWaitsForServersThatAreAway(t *testing.T) {
	t.Parallel()
	p := start(t, []string{"DATABASE_URL=" + nowhere, "KAFKA_BROKERS=127.0.0.1:1"})
	h := p.waitReady(http.StatusServiceUnavailable)
	require.False(t, h.OK)
	testkit.Wait(t, "the reason", func() (bool, error) {
		return strings.Contains(p.waitReady(http.StatusServiceUnavailable).Reason, "connection refused"), nil
	})
	r := run(t, nil, "healthcheck", "--admin", p.admin)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "not ready: starting")
	require.Equal(t, 0, p.terminate())
	require.NotContains(t, p.logs(), "s3cr3t")
}

func TestATakenAdminAddressIsAFailureWithARemedy(t *testing.T) {
	t.Parallel()
	environ := []string{"DATABASE_URL=" + nowhere, "KAFKA_BROKERS=127.0.0.1:1"}
	p := start(t, environ)
	r := run(t, environ, "run", "--admin", p.admin)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "choose another address with --admin")
}

func TestAParkedRowIsToldToTheWebhook(t *testing.T) {
	t.Parallel()
	environ, conn, topic := site(t)
	bodies := make(chan string, 10)
	chat := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- string(body)
	}))
	defer chat.Close()
	p := start(t, append(environ, "ALERT_URL="+chat.URL+"/hooks/s3cr3t"), "--service", "shop")
	_, err := conn.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'o-1', 'T', decode(repeat('00', 2000000), 'hex'))", topic)
	require.NoError(t, err)
	require.Contains(t, <-bodies, "shop: parked row: "+topic+": MESSAGE_TOO_LARGE")
	testkit.Wait(t, "the metric", func() (bool, error) {
		_, body, err := p.get("/metrics")
		return strings.Contains(body, "\noutbox_relay_alerts_total{outbox=\"shop\"} 1\n"), err
	})
	require.Equal(t, 0, p.terminate())
	require.NotContains(t, p.logs(), "s3cr3t")
}
