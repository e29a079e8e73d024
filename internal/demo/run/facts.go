package run

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/address"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/orders"
	"github.com/troupe-go/troupe/saga"
)

// facts holds the input of all checks: the posted orders, and the contents of the databases and topics at the end.
type facts struct {
	style    demo.Style
	declared []flow.Declaration // of the services, for a choreography
	posted   []orders.Order
	fail     demo.Fail
	seed     int64

	orders       map[string]orderRow         // by order id
	sagas        map[string]sagaRow          // by id
	logs         map[string][]eventRow       // by the saga's id, in order
	definitions  map[string]*saga.Definition // by hash
	deadlines    []string                    // ids of the sagas or orders that still have a deadline
	ledger       []ledgerRow
	accounts     map[string]accountRow // by customer id
	stock        map[int32]stockRow    // by title
	reservations []reservationRow
	shipments    []string // order ids
	deadLetters  []deadLetterRow
	queues       map[string]queueRow // by service

	messages []message // of the flow's topics, each partition in its order
	unread   map[string]int64
}

type orderRow struct {
	ID, Customer, State, Status, Saga string
	Title, Quantity                   int32
	Cents                             int64
	Created                           time.Time
	Ended                             *time.Time
	Times                             int // how often it ended, if no saga's log has it
}

// ended reports whether the order has ended, or is parked and only an operator can resume it.
func (o orderRow) ended() bool { return o.Ended != nil || o.Status == parked }

// holds returns how much of an effect the order must have, of whole for a completed order: a parked one may have all of it.
func (o orderRow) holds(whole, has int64) int64 {
	if o.Status == completed || o.Status == parked && has == whole {
		return whole
	}
	return 0
}

type sagaRow struct {
	ID, Definition string
	Version        int
	State          []byte
	Ended          bool
}

// eventRow is one decision of a saga.
type eventRow struct {
	Saga    string
	Version int
	At      time.Time
	Event   []byte
	Ends    int // history events with which the saga ended or was parked
}

type ledgerRow struct {
	OrderID, Kind string // charge or refund
	Cents         int64
}

type accountRow struct {
	Customer       string
	Balance, Limit int64 // cents
}

type stockRow struct {
	Title              int32
	Initial, Available int64
}

type reservationRow struct {
	OrderID  string
	Title    *int32 // nil: an empty reservation
	Quantity int32
	Released bool
}

type deadLetterRow struct {
	OrderID, Type, Class, Error string
}

// queueRow counts the messages that wait in a service's database.
type queueRow struct {
	Outbox, Failed, Held int64
}

// pools holds a small pool for each database of the run, by service. Its connections do not go through the proxy.
type pools map[string]*pgxpool.Pool

func openPools(ctx context.Context, urls map[string]string) (pools, error) {
	all := pools{}
	for service, url := range urls {
		config, err := address.ParsePool(url)
		if err != nil {
			return nil, err
		}
		config.MaxConns = 2
		if all[service], err = pgxpool.NewWithConfig(ctx, config); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (p pools) close() {
	for _, pool := range p {
		pool.Close()
	}
}

// readRows fills f from the databases. All processes must have ended.
func (f *facts) readRows(ctx context.Context, p pools) error {
	r := &rowReader{ctx: ctx}
	f.orders = indexBy(readAll[orderRow](r, p["order"], `
		SELECT order_id, customer_id, coalesce(state, ''), coalesce(status, ''), coalesce(saga_id, ''), title, quantity,
		       amount_cents, created_at, ended_at, `+timesSQL[f.style]+`
		FROM order_flow`), func(r orderRow) string { return r.ID })
	f.readSagas(r, p["order"])
	f.ledger = readAll[ledgerRow](r, p["payment"], `SELECT order_id, kind, amount_cents FROM ledger`)
	f.accounts = indexBy(readAll[accountRow](r, p["payment"], `SELECT customer_id, balance_cents, limit_cents FROM accounts`),
		func(r accountRow) string { return r.Customer })
	f.stock = indexBy(readAll[stockRow](r, p["inventory"], `SELECT title, initial, available FROM stock`), func(r stockRow) int32 { return r.Title })
	f.reservations = readAll[reservationRow](r, p["inventory"], `SELECT order_id, title, quantity, released_at IS NOT NULL FROM reservations`)
	f.shipments = readTexts(r, p["shipping"], `SELECT order_id FROM shipments`)
	f.queues = make(map[string]queueRow, len(services))
	f.deadLetters = nil
	for _, service := range services {
		for _, q := range readAll[queueRow](r, p[service], queuesSQL) {
			f.queues[service] = q
		}
		f.deadLetters = append(f.deadLetters, readAll[deadLetterRow](r, p[service], `
			SELECT coalesce(convert_from(key, 'UTF8'), ''), message_type, error_class, error
			FROM troupe.dead_letters WHERE status = 'open' ORDER BY id`)...)
	}
	return r.err
}

func (f *facts) readSagas(r *rowReader, pool *pgxpool.Pool) {
	sagas := readAll[sagaRow](r, pool, `SELECT id, definition, version, state, ended_at IS NOT NULL FROM troupe.sagas`)
	f.sagas = indexBy(sagas, func(r sagaRow) string { return r.ID })
	f.logs = make(map[string][]eventRow, len(sagas))
	for _, e := range readAll[eventRow](r, pool, `
		SELECT saga_id, version, at, event, (
		  SELECT count(*) FROM jsonb_array_elements(moments) AS m
		  WHERE m ->> 'what' IN ('SagaCompleted', 'SagaCompensated', 'SagaAbandoned', 'SagaParked'))
		FROM troupe.saga_events ORDER BY saga_id, version`) {
		f.logs[e.Saga] = append(f.logs[e.Saga], e)
	}
	f.definitions = make(map[string]*saga.Definition)
	for _, text := range readTexts(r, pool, `SELECT definition FROM troupe.saga_definitions`) {
		d, err := saga.Parse([]byte(text))
		if err != nil {
			r.err = fmt.Errorf("stored definition: %w", err)
			return
		}
		f.definitions[d.Hash()] = d
	}
	f.deadlines = readTexts(r, pool, openSQL[f.style])
}

// timesSQL selects how often an order ended.
var timesSQL = map[demo.Style]string{
	demo.Orchestration: "0",
	demo.Choreography:  "coalesce((SELECT times FROM order_ends AS e WHERE e.order_id = order_flow.order_id), 0)",
}

// openSQL selects the ids that still wait in the order database: of a saga with a deadline, or of an order whose end is still
// expected.
var openSQL = map[demo.Style]string{
	demo.Orchestration: "SELECT scope FROM troupe.deadlines",
	demo.Choreography:  "SELECT scope FROM troupe.deadlines UNION SELECT key FROM troupe.expectations WHERE forget_at IS NULL",
}

const queuesSQL = `
SELECT (SELECT count(*) FROM troupe.outbox_status WHERE status <> 'done'),
       (SELECT count(*) FROM troupe.outbox_failures),
       (SELECT count(*) FROM troupe.held)`

// A rowReader reads the results of queries until the first error.
type rowReader struct {
	ctx context.Context
	err error
}

// readAll reads all rows of a query into structs, by position. After an error of the reader it returns nil.
func readAll[T any](r *rowReader, pool *pgxpool.Pool, sql string) []T {
	return readBy(r, pool, sql, pgx.RowToStructByPos[T])
}

func readTexts(r *rowReader, pool *pgxpool.Pool, sql string) []string {
	return readBy(r, pool, sql, pgx.RowTo[string])
}

func readBy[T any](r *rowReader, pool *pgxpool.Pool, sql string, to pgx.RowToFunc[T]) []T {
	if r.err != nil {
		return nil
	}
	found, err := pool.Query(r.ctx, sql)
	var all []T
	if err == nil {
		all, err = pgx.CollectRows(found, to)
	}
	if err != nil {
		r.err = fmt.Errorf("read the %s database: %w", pool.Config().ConnConfig.Database, err)
	}
	return all
}

func indexBy[K comparable, T any](all []T, key func(T) K) map[K]T {
	m := make(map[K]T, len(all))
	for _, row := range all {
		m[key(row)] = row
	}
	return m
}
