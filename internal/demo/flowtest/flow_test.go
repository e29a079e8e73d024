// Package flow_test runs the whole order flow in one process: the four services, a relay for each, and real servers.
package flow_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/inventory"
	"github.com/troupe-go/troupe/internal/demo/order"
	"github.com/troupe-go/troupe/internal/demo/payment"
	"github.com/troupe-go/troupe/internal/demo/shipping"
	"github.com/troupe-go/troupe/internal/short"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) {
	short.Only(
		"TestOrderFlow",
	)
	testkit.Main(m)
}

// endLimit bounds the time in which services and relays end, on a machine that may stall.
const endLimit = 4 * time.Minute

var services = map[string]demo.Service{
	"order": order.Run, "payment": payment.Run, "inventory": inventory.Run, "shipping": shipping.Run,
}

// A flow is the running system.
type flow struct {
	t         *testing.T
	name      string
	url       string                   // of the order service
	databases map[string]*pgxpool.Pool // by service
}

// startFlow returns when every service is ready. At the test's end it stops them, and checks that they stop in time.
func startFlow(t *testing.T, style demo.Style) *flow {
	t.Helper()
	f := &flow{t: t, name: testkit.Flow(t), databases: map[string]*pgxpool.Pool{}}
	registry, brokers := testkit.Registry(t), testkit.Kafka(t)
	var listening []string
	ctx, cancel := context.WithCancel(context.Background())
	var running errgroup.Group
	for name, service := range services {
		pool, listen := testkit.Database(t), freePort(t)
		f.databases[name] = pool
		listening = append(listening, "http://"+listen)
		if name == "order" {
			f.url = "http://" + listen
		}
		log := testkit.Logger(t).With().Str("service", name).Logger()
		running.Go(func() error {
			return service(ctx, demo.Config{
				DatabaseURL: testkit.DatabaseURL(t, pool), Brokers: brokers, Registry: registry,
				Style: style, Flow: f.name, Listen: listen, Partitions: 2, Log: log,
			})
		})
		beside, err := relay.New(relay.Config{
			Source: relay.Poll, Pool: pool, Brokers: brokers, Service: name, Log: log,
			Lease: time.Minute, // a relay that lost its lease for a moment might publish twice, and messages are counted
		})
		require.NoError(t, err)
		running.Go(func() error { return beside.Run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		ended := make(chan error, 1)
		go func() { ended <- running.Wait() }()
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(endLimit):
			t.Errorf("still running %s after being asked to stop", endLimit)
		}
	})
	for _, url := range listening {
		testkit.Wait(t, url+" ready", func() (bool, error) {
			response, err := http.Get(url + "/readyz")
			if err != nil {
				return false, err
			}
			return response.StatusCode == http.StatusOK, response.Body.Close()
		})
	}
	return f
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

// An asked order is the body of POST /orders.
type asked struct {
	OrderID    string `json:"order_id"`
	CustomerID string `json:"customer_id"`
	PlacedAt   string `json:"placed_at"`
	Quantity   int    `json:"quantity"`
	Amount     string `json:"amount"`
}

// A shown order holds the parts of GET's response that these tests read.
type shown struct {
	State, Status, Reason string
	Version               int
	PaymentID             string `json:"payment_id"`
	ReservationID         string `json:"reservation_id"`
	ShipmentID            string `json:"shipment_id"`
	History               []struct{ What, Step string }
}

// moments returns the history without the events that have no step.
func (s shown) moments() []string {
	var all []string
	for _, h := range s.History {
		if h.Step != "" {
			all = append(all, h.Step+" "+h.What)
		}
	}
	return all
}

// post places an order of c-1 for 29.33, after change has changed it.
func (f *flow) post(t *testing.T, id string, change func(*asked)) {
	t.Helper()
	a := asked{OrderID: id, CustomerID: "c-1", PlacedAt: "1997-01-31", Quantity: 2, Amount: "29.33"}
	if change != nil {
		change(&a)
	}
	body, err := json.Marshal(a)
	require.NoError(t, err)
	response, err := http.Post(f.url+"/orders", "application/json", bytes.NewReader(body))
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusAccepted, response.StatusCode)
	require.Equal(t, "/orders/"+id, response.Header.Get("Location"))
}

func (f *flow) get(id string) (s shown, err error) {
	response, err := http.Get(f.url + "/orders/" + id)
	if err != nil {
		return s, err
	}
	defer response.Body.Close()
	return s, json.NewDecoder(response.Body).Decode(&s)
}

// await waits until the order has the status, and returns it.
func (f *flow) await(t *testing.T, id, status string) (s shown) {
	t.Helper()
	testkit.Wait(t, fmt.Sprintf("order %s %s", id, status), func() (ok bool, err error) {
		s, err = f.get(id)
		if err == nil && s.Status != status {
			err = fmt.Errorf("it is %s in %s: %s", s.Status, s.State, s.Reason)
		}
		return err == nil, err
	})
	return s
}

// ask reads one value from a service's database.
func ask[T any](t *testing.T, f *flow, service, sql string, args ...any) T {
	t.Helper()
	rows, err := f.databases[service].Query(t.Context(), sql, args...)
	require.NoError(t, err)
	value, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	require.NoError(t, err)
	return value
}

func (f *flow) exec(t *testing.T, service, sql string) {
	t.Helper()
	_, err := f.databases[service].Exec(t.Context(), sql)
	require.NoError(t, err)
}
