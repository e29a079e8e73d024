// Package polyglot_test runs the order flow with a shipping service in Python and a customer service in TypeScript.
package polyglot_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/inventory"
	"github.com/troupe-go/troupe/internal/demo/order"
	"github.com/troupe-go/troupe/internal/demo/payment"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/sagahttp"
	"github.com/troupe-go/troupe/internal/sidecar"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// system is the order flow with its databases, relays and services.
type system struct {
	t        *testing.T
	flow     string
	brokers  []string
	registry string
	running  *errgroup.Group
	ctx      context.Context
}

// TestServicesInOtherLanguagesTakePartInTheOrderFlow: one behind an ambassador, one with a Kafka client of its own.
func TestServicesInOtherLanguagesTakePartInTheOrderFlow(t *testing.T) {
	t.Parallel()
	python, node := install(t)
	ctx, cancel := context.WithCancel(context.Background())
	s := &system{t: t, flow: testkit.Flow(t), brokers: testkit.Kafka(t), registry: testkit.Registry(t), running: new(errgroup.Group), ctx: ctx}
	t.Cleanup(func() {
		cancel()
		require.NoError(t, s.running.Wait())
	})
	orders := address(t)
	s.service("order", order.Run, orders)
	s.service("payment", payment.Run, address(t))
	s.service("inventory", inventory.Run, address(t))
	s.topics("courier", "mail")

	warehouse := s.database("shipping", "CREATE TABLE shipments (id bigint GENERATED ALWAYS AS IDENTITY, key text PRIMARY KEY, order_id text NOT NULL)")
	listen := address(t)
	_, port, err := net.SplitHostPort(listen)
	require.NoError(t, err)
	s.foreign(python, "DATABASE_URL="+testkit.DatabaseURL(t, warehouse), "PORT="+port)
	s.ambassador(warehouse, listen)

	customers := s.database("customer", "CREATE TABLE inbox (id text PRIMARY KEY)")
	s.foreign(node, "DATABASE_URL="+testkit.DatabaseURL(t, customers), "KAFKA_BROKERS="+strings.Join(s.brokers, ","),
		"SCHEMA_REGISTRY_URL="+s.registry)

	seen := testkit.Consume(t, s.brokers, s.flow+".courier.commands", s.flow+".mail.commands", s.flow+".shipping.events")
	place(t, orders, "o-1", "c-1")
	place(t, orders, "o-2", "c-far")
	require.Equal(t, "completed", ends(t, orders, "o-1"))
	require.Equal(t, "compensated", ends(t, orders, "o-2"))
	got := make(map[string]envelope.Message)
	testkit.Wait(t, "the messages of both orders", func() (bool, error) {
		for _, r := range seen.Records() {
			m, err := kafka.Message(r)
			require.NoError(t, err)
			got[string(m.Key)+" "+m.Type] = m
		}
		if len(got) < 4 {
			return false, fmt.Errorf("%d so far", len(got))
		}
		return true, nil
	})
	require.Len(t, got, 4)
	require.JSONEq(t, `{"order_id":"o-1"}`, string(got["o-1 CollectParcel"].Payload))
	require.JSONEq(t, `{"customer":"c-1","text":"parcel s-1 is on its way"}`, string(got["o-1 SendMail"].Payload))
	require.Equal(t, envelope.Failure, got["o-2 troupe.order.ShippingRefused"].Outcome)
	shipped := got["o-1 troupe.order.OrderShipped"]
	require.Equal(t, []string{envelope.Avro, string(envelope.Success)}, []string{shipped.ContentType, string(shipped.Outcome)})
	for _, typ := range []string{"CollectParcel", "SendMail"} {
		require.Equal(t, shipped.CorrelationID, got["o-1 "+typ].CorrelationID, "one flow, whatever the language")
	}
}

// install puts what the services need into folders of the test's own, and returns how they are run.
func install(t *testing.T) (python, node *exec.Cmd) {
	t.Helper()
	packages, modules := t.TempDir(), t.TempDir()
	for _, name := range []string{"customer.ts", "package.json", "package-lock.json"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(modules, name), text, 0o600))
	}
	do := func(dir, name string, args ...string) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s %v: %s", name, args, out)
	}
	do(".", "python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "10", "--target", packages, "-r", "requirements.txt")
	do(modules, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries", "10")
	python = exec.Command("python3", "shipping.py")
	python.Env = append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1")
	node = exec.Command("node", "--import", "tsx", "customer.ts")
	node.Dir, node.Env = modules, os.Environ()
	return python, node
}

// foreign runs a program that is not ours until the test ends.
func (s *system) foreign(cmd *exec.Cmd, environ ...string) {
	s.t.Helper()
	said := &text{}
	cmd.Env = append(append(cmd.Env, "FLOW="+s.flow), environ...)
	cmd.Stdout, cmd.Stderr = said, said
	require.NoError(s.t, cmd.Start())
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if s.t.Failed() {
			s.t.Logf("%v: %s", cmd.Args, said)
		}
	})
}

type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (x *text) Write(b []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(b)
}

func (x *text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}

// database is one with Troupe's tables, the service's own, and a relay.
func (s *system) database(service, sql string) *pgxpool.Pool {
	s.t.Helper()
	pool := testkit.Database(s.t)
	_, err := pool.Exec(s.t.Context(), sql)
	require.NoError(s.t, err)
	r, err := relay.New(relay.Config{Source: relay.Poll, Pool: pool, Brokers: s.brokers, Service: service, Log: testkit.Logger(s.t)})
	require.NoError(s.t, err)
	s.running.Go(func() error { return r.Run(s.ctx) })
	return pool
}

func (s *system) service(name string, service demo.Service, listen string) {
	s.t.Helper()
	pool := s.database(name, "SELECT 1")
	s.running.Go(func() error {
		return service(s.ctx, demo.Config{
			DatabaseURL: testkit.DatabaseURL(s.t, pool), Brokers: s.brokers, Registry: s.registry, Flow: s.flow, Listen: listen,
			Partitions: 2, Log: testkit.Logger(s.t).With().Str("service", name).Logger(),
		})
	})
}

// topics makes the topics of hops without a consumer in this test.
func (s *system) topics(hops ...string) {
	s.t.Helper()
	client, err := kafka.NewClient(s.brokers)
	require.NoError(s.t, err)
	defer client.Close()
	for _, hop := range hops {
		testkit.Topics(s.t, client, 1, topics.MustHop(s.flow, hop).Commands())
	}
	testkit.Topics(s.t, client, 2, s.flow+".order.events") // kafkajs wants it to be there
}

// ambassador runs troupe ambassador for the shipping service.
func (s *system) ambassador(pool *pgxpool.Pool, service string) {
	s.t.Helper()
	const file = `commands:
  - {type: troupe.order.ShipOrder, path: /shipments, success: troupe.order.OrderShipped, failure: troupe.order.ShippingRefused}
`
	path := filepath.Join(s.t.TempDir(), "ambassador.yaml")
	require.NoError(s.t, os.WriteFile(path, []byte(file), 0o600))
	said := &text{}
	p := sidecar.Program{
		Args: []string{
			"--config", path, "--hop", s.flow + ".shipping", "--service-url", "http://" + service, "--admin", "127.0.0.1:0", "--partitions", "2",
		},
		Environ: []string{
			"DATABASE_URL=" + testkit.DatabaseURL(s.t, pool), "KAFKA_BROKERS=" + strings.Join(s.brokers, ","), "SCHEMA_REGISTRY_URL=" + s.registry,
		},
		Stdout: io.Discard, Stderr: said, Parts: sagahttp.NewServer,
	}
	s.running.Go(func() error {
		if status := p.Ambassador(s.ctx); status != 0 {
			return fmt.Errorf("ambassador: status %d: %s", status, said)
		}
		return nil
	})
}

// address returns one with a free port below the system's range of ephemeral ports, so that no other process gets it.
func address(t *testing.T) (free string) {
	t.Helper()
	testkit.Wait(t, "a free port", func() (bool, error) {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(10_000)))
		if err != nil {
			return false, err
		}
		free = l.Addr().String()
		return true, l.Close()
	})
	return free
}

func client() *http.Client { return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} }

// place posts an order until the service takes it.
func place(t *testing.T, orders, id, customer string) {
	t.Helper()
	body := fmt.Sprintf(`{"order_id":%q,"customer_id":%q,"placed_at":"1997-01-31","quantity":2,"amount":"29.33"}`, id, customer)
	testkit.Wait(t, "order "+id+" placed", func() (bool, error) {
		response, err := client().Post("http://"+orders+"/orders", "application/json", strings.NewReader(body))
		if err != nil {
			return false, err
		}
		return response.StatusCode == http.StatusAccepted, response.Body.Close()
	})
}

// ends is the status in which an order ends.
func ends(t *testing.T, orders, id string) (status string) {
	t.Helper()
	testkit.Wait(t, "the end of order "+id, func() (bool, error) {
		response, err := client().Get("http://" + orders + "/orders/" + id)
		if err != nil {
			return false, err
		}
		defer response.Body.Close()
		var o struct{ Status, State string }
		if err := json.NewDecoder(response.Body).Decode(&o); err != nil {
			return false, err
		}
		if status = o.Status; status != "completed" && status != "compensated" && status != "parked" {
			return false, fmt.Errorf("it is %s in %s", o.Status, o.State)
		}
		return true, nil
	})
	return status
}
