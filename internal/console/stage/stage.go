// Package stage runs an order flow with failures in one database, for tests of the console.
package stage

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// The commands to the hops, and their answers.
type (
	ChargePayment struct {
		OrderID string `json:"order_id"`
		Cents   int64  `json:"amount_cents"`
	}
	PaymentCharged struct {
		PaymentID string `json:"payment_id"`
	}
	PaymentRefused struct {
		Reason string `json:"reason"`
	}
	RefundPayment   struct{}
	PaymentRefunded struct{}
	ReserveStock    struct {
		OrderID string `json:"order_id"`
	}
	StockReserved struct {
		ReservationID string `json:"reservation_id"`
	}
	StockRefused struct {
		Reason string `json:"reason"`
	}
	ReleaseStock  struct{}
	StockReleased struct{}
	ShipOrder     struct {
		OrderID string `json:"order_id"`
	}
	OrderShipped struct {
		ShipmentID string `json:"shipment_id"`
	}
	ShippingRefused struct {
		Reason string `json:"reason"`
	}
)

// A Stage runs until its test ends.
type Stage struct {
	Pool *pgxpool.Pool
	Flow string

	t     testing.TB
	begin sync.Once
	c     *coordinator.Coordinator // nil until the first order

	mu      sync.Mutex
	fails   map[string]string // the error, by key and command
	refuses map[string]string // the reason, by key and command
}

//go:embed order.saga.json
var definition []byte

// New opens a database for the flow, whose services start with the first order.
func New(t testing.TB) *Stage {
	return &Stage{
		t: t, Pool: testkit.Database(t), Flow: testkit.Flow(t), fails: make(map[string]string), refuses: make(map[string]string),
	}
}

// open starts the four services.
func (s *Stage) open() {
	payment, inventory, shipping := s.hop("payment"), s.hop("inventory"), s.hop("shipping")
	handle[ChargePayment](s, payment, PaymentCharged{"p-1"}, func(reason string) any { return PaymentRefused{reason} })
	handle[RefundPayment](s, payment, PaymentRefunded{}, nil)
	handle[ReserveStock](s, inventory, StockReserved{"r-1"}, func(reason string) any { return StockRefused{reason} })
	handle[ReleaseStock](s, inventory, StockReleased{}, nil)
	handle[ShipOrder](s, shipping, OrderShipped{"s-1"}, func(reason string) any { return ShippingRefused{reason} })
	order := s.hop("order")
	d, err := saga.Parse(definition)
	require.NoError(s.t, err)
	s.c, err = coordinator.New(s.t.Context(), coordinator.Config{
		Participant: order, Pool: s.Pool, Definitions: []*saga.Definition{d}, Log: testkit.Logger(s.t),
	})
	require.NoError(s.t, err)
	for _, p := range []*participant.Participant{payment, inventory, shipping, order} {
		s.run(p.Run)
	}
}

// Store stores another version of the order's definition, as a coordinator does that starts with it, and returns its hash.
func (s *Stage) Store(change func(*saga.Spec)) string {
	s.t.Helper()
	d, err := saga.Parse(definition)
	require.NoError(s.t, err)
	spec := d.Spec()
	spec.Version++
	spec.Steps = slices.Clone(spec.Steps)
	change(&spec)
	d, err = saga.Define(spec)
	require.NoError(s.t, err)
	_, err = s.Pool.Exec(s.t.Context(), "INSERT INTO troupe.saga_definitions (hash, saga, version, definition) VALUES ($1, $2, $3, $4)",
		d.Hash(), spec.Saga, spec.Version, string(d.JSON()))
	require.NoError(s.t, err)
	return d.Hash()
}

// Parcels stores a version that ships with another command, and returns its hash. A saga that has requested a shipment cannot
// move to it.
func (s *Stage) Parcels() (hash string) {
	return s.Store(func(spec *saga.Spec) {
		last := len(spec.Steps) - 1
		ship := *spec.Steps[last].Command
		ship.Type = "ShipParcel"
		spec.Steps[last].Command = &ship
	})
}

func (s *Stage) hop(name string) *participant.Participant {
	p, err := participant.New(participant.Config{
		Pool: s.Pool, Hop: topics.MustHop(s.Flow, name), Local: true, Immediate: -1, Log: testkit.Logger(s.t),
		Retry: retry.Policy{Initial: time.Millisecond, Cap: time.Millisecond, Attempts: 3},
	})
	require.NoError(s.t, err)
	return p
}

func handle[T any](s *Stage, p *participant.Participant, done any, refused func(string) any) {
	participant.Handle(p, func(_ context.Context, _ pgx.Tx, c participant.Command[T]) (participant.Outcome, error) {
		what := string(c.Message.Key) + " " + c.Message.Type
		s.mu.Lock()
		fails, refuses := s.fails[what], s.refuses[what]
		s.mu.Unlock()
		switch {
		case fails != "":
			return participant.Outcome{}, errors.New(fails)
		case refuses != "":
			return participant.Refuse(refused(refuses)), nil
		}
		return participant.Succeed(done), nil
	})
}

func (s *Stage) run(run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		require.NoError(s.t, <-result)
	})
}

// Fail makes a command of a key fail with a text; "": it succeeds again.
func (s *Stage) Fail(key, command, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails[key+" "+command] = text
}

// Refuse makes a hop refuse a command of a key, with a reason.
func (s *Stage) Refuse(key, command, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuses[key+" "+command] = reason
}

// Order starts an order, and waits until it has a status.
func (s *Stage) Order(key string, want saga.Status) (id string) {
	s.t.Helper()
	s.begin.Do(s.open)
	require.NoError(s.t, pgx.BeginFunc(s.t.Context(), s.Pool, func(tx pgx.Tx) (err error) {
		is, err := s.c.Start(s.t.Context(), tx, "order", map[string]any{
			"order_id": key, "customer_id": "c-7", "amount_cents": 1999, "title": 7, "quantity": 1,
		})
		id = is.ID
		return err
	}))
	s.Await(id, want)
	return id
}

// Await waits until a saga has a status.
func (s *Stage) Await(id string, want saga.Status) {
	s.t.Helper()
	testkit.Wait(s.t, id+" to be "+string(want), func() (bool, error) {
		var status string
		err := s.Pool.QueryRow(s.t.Context(), "SELECT status FROM troupe.sagas WHERE id = $1", id).Scan(&status)
		return status == string(want), err
	})
}

// A Letter is the message of a row that Dead and Hold write.
type Letter struct {
	Key, Type, Payload, Error, Class string
	Headers                          []envelope.Header // in addition to its attributes
}

func (l Letter) headers(id string) []byte {
	return envelope.MarshalHeaders(append([]envelope.Header{
		{Key: ce.HeaderID, Value: []byte(id)},
		{Key: "ce_specversion", Value: []byte("1.0")},
		{Key: "ce_type", Value: []byte(l.Type)},
		{Key: "ce_source", Value: []byte("shop")},
		{Key: ce.HeaderContentType, Value: []byte(envelope.JSON)},
	}, l.Headers...))
}

// Dead writes a dead letter, as a participant of another hop would leave it over Kafka.
func (s *Stage) Dead(offset int, l Letter) uuid.UUID {
	s.t.Helper()
	id := uuid.Must(uuid.NewV7())
	message := fmt.Sprintf("charge-%d", offset)
	_, err := s.Pool.Exec(s.t.Context(), `
		INSERT INTO troupe.dead_letters (id, consumer_group, handler, error_class, error, attempts, topic, topic_id, partition,
		                                 "offset", key, headers, payload, message_id, message_type, correlation_id, redrives,
		                                 first_failed_at, last_failed_at)
		VALUES ($1, 'shop.billing', 'shop.billing/' || $2, $3, $4, 3, 'shop.billing.commands', '0191f6a8-0000-4000-8000-000000000001', 0,
		        $5, $6, $7, $8, $9, $2, '0199a5e0-7c1d-7d3a-9d0b-6f3b1c2d4e5f', 0, now() - interval '10 minutes', now() - interval '5 minutes')`,
		id, l.Type, l.Class, l.Error, offset, []byte(l.Key), l.headers(message), []byte(l.Payload), message)
	require.NoError(s.t, err)
	return id
}

// Hold writes a message that failed and waits for its next try, and more messages of its key that wait for it.
func (s *Stage) Hold(offset, behind int, l Letter) {
	s.t.Helper()
	for i := range behind + 1 {
		attempts, failed := 2, true
		if i > 0 {
			attempts, failed = 0, false
		}
		_, err := s.Pool.Exec(s.t.Context(), `
			INSERT INTO troupe.held (consumer_group, topic_id, partition, "offset", topic, hold_key, key, headers, payload, message_time, attempts,
			                         max_attempts, next_try, error_class, last_error, first_failed_at, last_failed_at)
			VALUES ('shop.billing', '0191f6a8-0000-4000-8000-000000000001', 0, $1, 'shop.billing.commands', sha256($2), $2, $3, $4, now(), $5, 8,
			        CASE WHEN $6 THEN now() + interval '1 hour' END, CASE WHEN $6 THEN $7 END, CASE WHEN $6 THEN $8 END,
			        CASE WHEN $6 THEN now() - interval '1 minute' END, CASE WHEN $6 THEN now() END)`,
			offset+i, []byte(l.Key), l.headers(fmt.Sprintf("charge-%d", offset+i)), []byte(l.Payload), attempts, failed, l.Class, l.Error)
		require.NoError(s.t, err)
	}
}

// Expect writes three expectations of that name in the service shop.order, with a time of one minute: key-1 is missing, key-2
// is waiting, and key-3 is late.
func (s *Stage) Expect(name, key string) {
	s.t.Helper()
	_, err := s.Pool.Exec(s.t.Context(), `
		INSERT INTO troupe.expectations (consumer_group, name, key, after_at, due_at, alert_id, missed_at, met_at, alerted_at, forget_at)
		SELECT 'shop.order', $1, $2 || '-' || n, now() - interval '2 minutes', now() + (n - 2) * interval '1 minute', gen_random_uuid(),
		       CASE WHEN n <> 2 THEN now() END, CASE WHEN n = 3 THEN now() END, CASE WHEN n = 1 THEN now() END, CASE WHEN n = 3 THEN now() + interval '7 days' END
		FROM generate_series(1, 3) AS n`, name, key)
	require.NoError(s.t, err)
}

// Schedules writes four schedules: one fails, one is overdue, one is paused, and one is on time.
func (s *Stage) Schedules() {
	s.t.Helper()
	s.exec(`INSERT INTO troupe.schedules (name, cron, zone, saga, topic, type, data, next_at, paused_at, error) VALUES
		('a-failing', '@daily', 'UTC', 'billing', NULL, NULL, '{}', now() - interval '6 minutes', NULL, 'no variable of'),
		('b-overdue', '@daily', 'UTC', 'billing', NULL, NULL, '{}', now() - interval '5 minutes', NULL, NULL),
		('c-paused', '@daily', 'UTC', NULL, 't', 'T', '{}', now() - interval '1 hour', now(), NULL),
		('d-on-time', '30 2 * * *', 'Europe/Berlin', NULL, 'shop.billing.commands', 'Bill', '{"card": "4711"}', now() + interval '1 hour', NULL, NULL)`)
}

// Rebuilds writes two rebuilds of the group shop.summary: one has finished, and of the other one partition runs and one waits.
func (s *Stage) Rebuilds() {
	s.t.Helper()
	s.exec(`INSERT INTO troupe.rebuilds (consumer_group, generation, handlers, from_time, emit, finished_at) VALUES
		('shop.summary', 1, '{shop.summary/all}', '2026-01-01', false, now()),
		('shop.summary', 2, '{shop.summary/Paid,shop.summary/Refused}', '2026-01-01', false, NULL)`)
	s.exec(`INSERT INTO troupe.rebuild_partitions (rebuild, topic, partition, topic_id, handlers, from_offset, watermark, epoch, until, began_at)
		SELECT id, 'shop.payment.events', n, '00000000-0000-0000-0000-000000000001', handlers, 100, until - 1, until - until, until, now() + (until - until) * interval '1 second'
		FROM troupe.rebuilds, (VALUES (0, 300), (1, NULL)) AS p (n, until)
		WHERE finished_at IS NULL`)
	s.exec(`INSERT INTO troupe.leases (consumer_group, topic, partition, topic_id, term, owner, watermark, watermark_epoch)
		VALUES ('shop.summary', 'shop.payment.events', 0, '00000000-0000-0000-0000-000000000001', 1, 'member', 149, 0)`)
}

func (s *Stage) exec(sql string) {
	s.t.Helper()
	_, err := s.Pool.Exec(s.t.Context(), sql)
	require.NoError(s.t, err)
}

// FailedRow writes an outbox row that the relay could not publish, with its status, and returns its id.
func (s *Stage) FailedRow(topic, status, why string) (id string) {
	s.t.Helper()
	require.NoError(s.t, s.Pool.QueryRow(s.t.Context(), `
		WITH row AS (
		  INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'o-' || (SELECT count(*) + 1 FROM troupe.outbox_failures), 'shop.ChargeCard', '{"cents": 1999}')
		  RETURNING position, id, topic, key
		)
		INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, attempts, max_attempts, next_try, last_error)
		SELECT position, id, topic, key::bytea, $2, CASE WHEN $2 = 'waiting' THEN 0 ELSE 8 END, 8, CASE WHEN $2 = 'retrying' THEN now() + interval '1 hour' END, $3
		FROM row
		RETURNING id::text`, topic, status, why).Scan(&id))
	return id
}

// Leads writes the rows of an active relay, with a slot that retained more log during the day.
func (s *Stage) Leads() {
	s.t.Helper()
	_, err := s.Pool.Exec(s.t.Context(), `
		INSERT INTO troupe.relay_leases (shard, holder, term, expires_at, source, source_why)
		VALUES (0, 'relay-7f9c', 3, now() + interval '1 hour', 'wal', 'the server and the role allow it')`)
	require.NoError(s.t, err)
	_, err = s.Pool.Exec(s.t.Context(), `
		INSERT INTO troupe.relay_slot_samples (shard, minute, at, slot, retained)
		SELECT 0, n, now() - (1439 - n) * interval '1 minute', 'troupe_order', 16777216 + n * 40000 + CASE WHEN n % 480 > 400 THEN (n % 480 - 400) * 900000 ELSE 0 END
		FROM generate_series(0, 1439) AS n
		WHERE n NOT BETWEEN 600 AND 660`)
	require.NoError(s.t, err)
}
