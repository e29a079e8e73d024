package schemas_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// Three versions of an event, each compatible with all before it in both directions.
type (
	paid1 struct {
		OrderID string `avro:"order_id"`
		Note    string `avro:"note"`
	}
	paid2 struct {
		OrderID  string `avro:"order_id"`
		Currency string `avro:"currency"`
	}
	paid3 struct {
		OrderID  string `avro:"order_id"`
		Currency string `avro:"currency"`
		Method   string `avro:"method"`
	}
)

const (
	orderID  = `{"name":"order_id","type":"string"}`
	note     = `{"name":"note","type":"string","default":"-"}`
	currency = `{"name":"currency","type":"string","default":"EUR"}`
	method   = `{"name":"method","type":{"type":"enum","name":"Method","symbols":["UNKNOWN","CARD"],"default":"UNKNOWN"},"default":"UNKNOWN"}`
)

// A market has the event's topic, a registry that can become unavailable, and a database for the services.
type market struct {
	t       *testing.T
	name    string // of the event, in all versions
	hop     topics.Hop
	client  *kgo.Client
	pool    *pgxpool.Pool
	address string // of a proxy before the registry
	away    atomic.Bool
	asked   atomic.Int64 // requests for schemas by id
	failed  chan participant.Delivery
}

func newMarket(t *testing.T) *market {
	behind, err := url.Parse(testkit.Registry(t))
	require.NoError(t, err)
	space := "t" + strings.ReplaceAll(uuid.NewString(), "-", "")
	m := &market{
		t: t, name: space + ".PaymentCharged", hop: topics.MustHop(testkit.Flow(t), "payment"), pool: testkit.Database(t),
		failed: make(chan participant.Delivery, 1000),
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(behind) }}
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.Contains(req.URL.Path, "/schemas/ids/") {
			m.asked.Add(1)
		}
		if m.away.Load() {
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, req)
	}))
	t.Cleanup(door.Close)
	m.address = door.URL
	m.client, err = kafka.NewClient(testkit.Kafka(t))
	require.NoError(t, err)
	t.Cleanup(m.client.Close)
	require.NoError(t, kafka.Provision(t.Context(), m.client, kafka.Topic{Name: m.hop.Events(), Partitions: 2}))
	_, err = m.pool.Exec(t.Context(), "CREATE TABLE seen (who text, order_id text, body text, PRIMARY KEY (who, order_id))")
	require.NoError(t, err)
	t.Cleanup(func() {
		r, err := schemas.NewRegistry(testkit.Registry(t))
		require.NoError(t, err)
		require.NoError(t, r.DeleteSubjects(context.WithoutCancel(t.Context()), m.name))
	})
	return m
}

func (m *market) avsc(fields ...string) string {
	return fmt.Sprintf(`{"type":"record","name":%q,"fields":[%s]}`, m.name, strings.Join(fields, ","))
}

func (m *market) codec(types ...schemas.Type) *schemas.Codec {
	m.t.Helper()
	r, err := schemas.NewRegistry(m.address)
	require.NoError(m.t, err)
	c, err := schemas.New(m.t.Context(), schemas.Config{Registry: r, Types: types, Timeout: time.Minute})
	require.NoError(m.t, err)
	return c
}

// listen runs a service that binds one version of the event and records the messages that it reads.
func listen[T any](m *market, who string, c *schemas.Codec, id func(T) string) {
	p, err := participant.New(participant.Config{
		Pool: m.pool, Brokers: testkit.Kafka(m.t), Hop: topics.MustHop(m.hop.Flow(), who), Codec: c, Log: testkit.Logger(m.t),
		Retry:     retry.Policy{Initial: 200 * time.Millisecond, Cap: 200 * time.Millisecond, Attempts: 200, NoJitter: true},
		Immediate: -1,
		Hooks:     participant.Hooks{Failed: func(d participant.Delivery) { m.failed <- d }},
	})
	require.NoError(m.t, err)
	participant.On(p, m.hop, func(ctx context.Context, tx pgx.Tx, e participant.Event[T]) error {
		_, err := tx.Exec(ctx, "INSERT INTO seen VALUES ($1, $2, $3)", who, id(e.Body), fmt.Sprint(e.Body))
		return err
	})
	ctx, leave := context.WithCancel(m.t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	m.t.Cleanup(func() {
		leave()
		require.NoError(m.t, <-done)
	})
}

func (m *market) send(c *schemas.Codec, bodies ...any) {
	m.t.Helper()
	for _, body := range bodies {
		e, err := c.Encode(m.hop.Events(), body)
		require.NoError(m.t, err)
		m.sendPayload(e.Payload)
	}
}

func (m *market) sendPayload(payload []byte) {
	m.t.Helper()
	id := envelope.NewID()
	require.NoError(m.t, m.client.ProduceSync(m.t.Context(), kafka.Record(envelope.Message{
		Topic: m.hop.Events(), Key: []byte(id), Payload: payload, ID: id, Type: m.name, Source: "payment", Subject: id,
		ContentType: envelope.Avro, CorrelationID: id, Outcome: envelope.Success,
	})).FirstErr())
}

// waitSeen returns the message of an order that a service has read.
func (m *market) waitSeen(who, order, want string) {
	m.t.Helper()
	var got string
	testkit.Wait(m.t, who+" to read "+order, func() (bool, error) {
		err := m.pool.QueryRow(m.t.Context(), "SELECT body FROM seen WHERE who = $1 AND order_id = $2", who, order).Scan(&got)
		return err == nil, err
	})
	require.Equal(m.t, want, got)
}

// waitDead returns the error in who's dead letter for that payload.
func (m *market) waitDead(who string, payload []byte) (class, text string) {
	m.t.Helper()
	testkit.Wait(m.t, "a dead letter", func() (bool, error) {
		err := m.pool.QueryRow(m.t.Context(), "SELECT error_class, error FROM troupe.dead_letters WHERE payload = $1 AND handler LIKE '%' || $2 || '/%'",
			payload, who).Scan(&class, &text)
		return err == nil, err
	})
	return class, text
}

func TestASchemaEvolvesWhileTheFlowRuns(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	v1, v2 := schemas.Bind[paid1](m.avsc(orderID, note)), schemas.Bind[paid2](m.avsc(orderID, currency))
	v3 := schemas.Bind[paid3](m.avsc(orderID, currency, method))

	// A service in the first version, and messages of it.
	old := m.codec(v1)
	listen(m, "ledger", old, func(e paid1) string { return e.OrderID })
	m.send(old, paid1{"o-1", "gift"})
	m.waitSeen("ledger", "o-1", "{o-1 gift}")

	// The second version is deployed: a reader of it starts at the beginning, and both versions are written in turn.
	fresh := m.codec(v2)
	listen(m, "shipping", fresh, func(e paid2) string { return e.OrderID })
	m.send(fresh, paid2{"o-2", "CHF"})
	m.send(old, paid1{"o-3", "late"})
	m.waitSeen("shipping", "o-1", "{o-1 EUR}")
	m.waitSeen("shipping", "o-2", "{o-2 CHF}")
	m.waitSeen("shipping", "o-3", "{o-3 EUR}")
	m.waitSeen("ledger", "o-2", "{o-2 -}")
	m.waitSeen("ledger", "o-3", "{o-3 late}")

	// The registry becomes unavailable. Messages of known versions are still read; a version that readers have not seen waits
	// until it returns.
	newest := m.codec(v3)
	m.away.Store(true)
	m.send(newest, paid3{"o-4", "EUR", "CARD"})
	m.send(old, paid1{"o-5", "known"})
	m.waitSeen("shipping", "o-5", "{o-5 EUR}")
	for range 12 { // six attempts of each service
		d := <-m.failed
		require.Equal(t, participant.Transient, d.Class, "%v", d.Err)
		require.NotErrorIs(t, d.Err, envelope.ErrPayload)
	}
	m.away.Store(false)
	m.waitSeen("shipping", "o-4", "{o-4 EUR}")
	m.waitSeen("ledger", "o-4", "{o-4 -}")

	var dead int
	require.NoError(t, m.pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.dead_letters").Scan(&dead))
	require.Zero(t, dead)
}

func TestAPayloadWithoutAReadableSchemaBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	c := m.codec(schemas.Bind[paid1](m.avsc(orderID, note)))
	listen(m, "ledger", c, func(e paid1) string { return e.OrderID })
	good, err := c.Encode(m.hop.Events(), paid1{"o-1", "x"})
	require.NoError(t, err)

	// The first byte is wrong: no retry can fix that.
	magic := append([]byte{1}, good.Payload[1:]...)
	m.sendPayload(magic)
	class, text := m.waitDead("ledger", magic)
	require.Equal(t, "poison", class)
	require.Contains(t, text, "first byte is 0x1")
	require.Zero(t, m.asked.Load())
	require.Empty(t, m.failed, "no attempt was wasted on it")

	// The schema's id is unknown, and may still be registered: it is requested five times.
	nobody := append(binary.BigEndian.AppendUint32([]byte{0}, 1<<30), good.Payload[5:]...)
	m.sendPayload(nobody)
	class, text = m.waitDead("ledger", nobody)
	require.Equal(t, "poison", class)
	require.Contains(t, text, "schema id 1073741824")
	require.EqualValues(t, 5, m.asked.Load())
	require.GreaterOrEqual(t, len(m.failed), 4)
	for len(m.failed) > 0 {
		require.Equal(t, participant.Transient, (<-m.failed).Class)
	}

	m.sendPayload(good.Payload)
	m.waitSeen("ledger", "o-1", "{o-1 x}")
}
