package flow_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// These are the messages of an order without an orchestrator: payment and inventory react to Placed independently; shipping waits
// for both; if one of them refuses or gives up, the other undoes its part.
type (
	Placed struct {
		Cents int
		Fail  string
	}
	OutOfStock struct{}
	Refunded   struct{}
	Released   struct{}
)

// world is a flow of services, each with its own database and relay.
type world struct {
	t     testing.TB
	flow  string
	pools map[string]*pgxpool.Pool
}

func newWorld(t testing.TB) *world {
	return &world{t: t, flow: testkit.Flow(t), pools: make(map[string]*pgxpool.Pool)}
}

func (w *world) hop(name string) topics.Hop { return topics.MustHop(w.flow, name) }

// serve runs a service until the test ends, or until the returned function is called.
func (w *world) serve(declared flow.Declaration, tables string, register func(s *flow.Service)) (stop func()) {
	w.t.Helper()
	hop, err := topics.ParseHop(declared.Hop)
	require.NoError(w.t, err)
	pool := testkit.Database(w.t)
	_, err = pool.Exec(w.t.Context(), tables)
	require.NoError(w.t, err)
	w.pools[hop.Name()] = pool
	p, err := participant.New(participant.Config{
		Pool: pool, Brokers: testkit.Kafka(w.t), Hop: hop, Partitions: 2, Retry: quick, Log: testkit.Logger(w.t), Kafka: session(),
	})
	require.NoError(w.t, err)
	register(bind(w.t, p, declared))
	stopRelay := w.relay(hop.Name())
	stopService := run(w.t, p)
	testkit.Wait(w.t, hop.String()+" to be ready", func() (bool, error) { err := p.Ready(); return err == nil, err })
	return func() {
		stopService()
		stopRelay()
	}
}

func (w *world) relay(name string) (stop func()) {
	r, err := relay.New(relay.Config{Source: relay.Poll, Pool: w.pools[name], Brokers: testkit.Kafka(w.t), Service: name})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			require.NoError(w.t, <-ended)
		})
	}
	w.t.Cleanup(stop)
	return stop
}

func (w *world) count(hop, sql string, args ...any) (n int) {
	w.t.Helper()
	require.NoError(w.t, w.pools[hop].QueryRow(w.t.Context(), sql, args...).Scan(&n), sql)
	return n
}

// keys returns the values of a query's only column.
func (w *world) keys(hop, sql string) []string {
	w.t.Helper()
	rows, err := w.pools[hop].Query(w.t.Context(), sql)
	require.NoError(w.t, err)
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(w.t, err)
	return keys
}

// place runs the order service, which only starts flows, and returns the function that starts one.
func (w *world) place() func(key string, o Placed) {
	declared := flow.Declaration{
		Hop: w.flow + ".order", Starts: []flow.Message{events(w.flow, "order", "Placed")},
		Reactions: []flow.Reaction{{On: events(w.flow, "shipping", "Shipped")}},
	}
	var out *outbox.Outbox
	w.serve(declared, "CREATE TABLE completed (order_id text PRIMARY KEY)", func(s *flow.Service) {
		out = s.Participant().Outbox()
		flow.On(s, w.hop("shipping"), func(ctx context.Context, tx pgx.Tx, e participant.Event[Shipped]) (participant.Outcome, error) {
			_, err := tx.Exec(ctx, "INSERT INTO completed VALUES ($1)", string(e.Message.Key))
			return participant.Done(), err
		})
	})
	return func(key string, o Placed) {
		require.NoError(w.t, pgx.BeginFunc(w.t.Context(), w.pools["order"], func(tx pgx.Tx) error {
			return out.Write(w.t.Context(), tx, outbox.Entry{
				Topic: w.hop("order").Events(), Key: key, Body: o, Outcome: "success", IdempotencyKey: key,
			})
		}))
	}
}

// part is payment or inventory: it does its part of an order, unless the order instructs it to fail, and undoes it once,
// whichever of the two is handled first.
type part struct {
	w                             *world
	name, other                   string
	done, refused, undone, theirs string // types of events
}

const partTable = "CREATE TABLE parts (order_id text PRIMARY KEY, undone boolean NOT NULL)"

func (p part) declared() flow.Declaration {
	w := p.w
	own := func(typ string) []flow.Message { return []flow.Message{events(w.flow, p.name, typ)} }
	exhausted := participant.Exhausted{}.MessageType()
	return flow.Declaration{
		Hop: w.flow + "." + p.name,
		Reactions: []flow.Reaction{
			{On: events(w.flow, "order", "Placed"), Success: own(p.done), Failure: own(p.refused)},
			{On: events(w.flow, p.other, p.theirs), Success: own(p.undone), Undoes: []string{p.done}},
			{On: events(w.flow, p.other, exhausted), Success: own(p.undone), Undoes: []string{p.done}},
		},
	}
}

func (p part) serve(done, refused, undone any, register func(s *flow.Service)) {
	from := p.w.hop(p.other)
	p.w.serve(p.declared(), partTable, func(s *flow.Service) {
		flow.On(s, p.w.hop("order"), func(ctx context.Context, tx pgx.Tx, e participant.Event[Placed]) (participant.Outcome, error) {
			switch {
			case e.Body.Fail == p.name+" refuses":
				return participant.Refuse(refused), nil
			case e.Body.Fail == p.name+" gives up", e.Body.Fail == p.name+" stumbles" && e.Attempt < 3:
				return participant.Outcome{}, errors.New("as asked")
			}
			var was bool
			err := tx.QueryRow(ctx, `INSERT INTO parts VALUES ($1, false) ON CONFLICT (order_id) DO UPDATE SET undone = parts.undone
				RETURNING undone`, string(e.Message.Key)).Scan(&was)
			if was {
				return participant.Refuse(refused), err // it was undone before it was done
			}
			return participant.Succeed(done), err
		})
		flow.On(s, from, func(ctx context.Context, tx pgx.Tx, e participant.Event[participant.Exhausted]) (participant.Outcome, error) {
			_, err := tx.Exec(ctx, undoSQL, string(e.Message.Key))
			return participant.Succeed(undone), err
		})
		register(s)
	})
}

// parts runs payment and inventory.
func (w *world) parts() {
	payment := part{w, "payment", "inventory", "Paid", "Declined", "Refunded", "OutOfStock"}
	payment.serve(Paid{}, Declined{}, Refunded{}, func(s *flow.Service) {
		flow.On(s, w.hop("inventory"), func(ctx context.Context, tx pgx.Tx, e participant.Event[OutOfStock]) (participant.Outcome, error) {
			_, err := tx.Exec(ctx, undoSQL, string(e.Message.Key))
			return participant.Succeed(Refunded{}), err
		})
	})
	inventory := part{w, "inventory", "payment", "Reserved", "OutOfStock", "Released", "Declined"}
	inventory.serve(Reserved{}, OutOfStock{}, Released{}, func(s *flow.Service) {
		flow.On(s, w.hop("payment"), func(ctx context.Context, tx pgx.Tx, e participant.Event[Declined]) (participant.Outcome, error) {
			_, err := tx.Exec(ctx, undoSQL, string(e.Message.Key))
			return participant.Succeed(Released{}), err
		})
	})
}

// undoSQL undoes an order's part, even before it was done.
const undoSQL = "INSERT INTO parts VALUES ($1, true) ON CONFLICT (order_id) DO UPDATE SET undone = true"

// shipping runs the service that waits for both.
func (w *world) shipping() {
	declared := shipping(w.flow)
	exhausted := participant.Exhausted{}.MessageType()
	declared.Joins[0].Broken = []flow.Message{
		events(w.flow, "payment", "Declined"), events(w.flow, "inventory", "OutOfStock"),
		events(w.flow, "payment", exhausted), events(w.flow, "inventory", exhausted),
	}
	w.serve(declared, shipments, func(s *flow.Service) {
		flow.OnJoin(s, "ready", flow.Ends{Complete: ship, Expired: tooLate})
	})
}

// TestEveryFlowEnds runs forty orders. Some are refused by a service, some need retries and some are given
// up; each ends completed, compensated or parked, and no process decides for the others.
func TestEveryFlowEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.parts()
	w.shipping()
	place := w.place()
	fails := []string{
		"", "payment refuses", "inventory refuses", "payment stumbles", "inventory stumbles", "payment gives up", "inventory gives up", "",
	}
	const orders = 40
	for i := range orders {
		place(fmt.Sprintf("o-%02d %s", i, fails[i%len(fails)]), Placed{Cents: i, Fail: fails[i%len(fails)]})
	}
	good := func(key string) bool { return strings.HasSuffix(key, " ") || strings.HasSuffix(key, "stumbles") }
	var completed, undone, held []string
	testkit.Wait(t, "the end of each order", func() (bool, error) {
		completed = w.keys("order", "SELECT order_id FROM completed ORDER BY 1")
		const sql = "SELECT order_id FROM parts WHERE undone ORDER BY 1"
		undone = append(w.keys("payment", sql), w.keys("inventory", sql)...)
		slices.Sort(undone)
		undone = slices.Compact(undone) // an order that is undone before it arrives is refused, and that refusal is undone too
		held = held[:0]
		for _, hop := range []string{"payment", "inventory"} {
			for _, key := range w.keys(hop, "SELECT order_id FROM parts WHERE NOT undone ORDER BY 1") {
				if !good(key) {
					held = append(held, hop+" "+key)
				}
			}
		}
		if len(completed) == orders/2 && len(undone) == orders/2 && len(held) == 0 {
			return true, nil
		}
		return false, fmt.Errorf("%d completed, %d taken back, held: %v", len(completed), len(undone), held)
	})
	for _, key := range completed {
		require.True(t, good(key), key)
	}
	for _, key := range undone {
		require.False(t, good(key), key)
	}
	var parked []string
	for _, hop := range []string{"payment", "inventory"} {
		parked = append(parked, w.keys(hop, "SELECT convert_from(key, 'UTF8') FROM troupe.dead_letters")...)
	}
	require.Len(t, parked, orders/4, "given up, each once, by the hop that owns the retries")
	for _, key := range parked {
		require.True(t, strings.HasSuffix(key, "gives up"), key)
	}
	require.Equal(t, orders/2, w.count("shipping", "SELECT count(*) FROM troupe.joins WHERE status = 'complete'"))
	require.Equal(t, orders/2, w.count("shipping", "SELECT count(*) FROM shipments"))
	testkit.Wait(t, "joins to end", func() (bool, error) {
		return w.count("shipping", "SELECT count(*) FROM troupe.joins WHERE status = 'broken'") == orders/2, nil
	})
	require.Zero(t, w.count("shipping", "SELECT count(*) FROM troupe.deadlines"))
}

// TestServicesComeAndGo adds a service that counts sales to a running flow and removes it again; nothing else changes, and
// nothing waits for it.
func TestServicesComeAndGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.parts()
	w.shipping()
	place := w.place()
	completed := func(n int) {
		testkit.Wait(t, "orders", func() (bool, error) { return w.count("order", "SELECT count(*) FROM completed") == n, nil })
	}
	place("o-1", Placed{})
	completed(1)
	leave := w.serve(flow.Declaration{
		Hop:       w.flow + ".sales",
		Reactions: []flow.Reaction{{On: events(w.flow, "shipping", "Shipped"), Success: []flow.Message{events(w.flow, "sales", "Notify")}}},
	}, "CREATE TABLE sold (order_id text PRIMARY KEY)", func(s *flow.Service) {
		flow.On(s, w.hop("shipping"), func(ctx context.Context, tx pgx.Tx, e participant.Event[Shipped]) (participant.Outcome, error) {
			_, err := tx.Exec(ctx, "INSERT INTO sold VALUES ($1)", string(e.Message.Key))
			return participant.Succeed(Notify{}), err
		})
	})
	place("o-2", Placed{})
	completed(2)
	testkit.Wait(t, "the sales before the change and after it", func() (bool, error) { return w.count("sales", "SELECT count(*) FROM sold") == 2, nil })
	leave()
	place("o-3", Placed{})
	completed(3)
	require.Equal(t, 2, w.count("sales", "SELECT count(*) FROM sold"))
	require.Equal(t, []string{"o-1", "o-2"}, w.keys("sales", "SELECT order_id FROM sold ORDER BY 1"))
}
