// Command drone-delivery runs the drone delivery of the choreography pattern: no orchestrator, the type of a message is the
// flow's state, and an ambassador for each HTTP service turns messages into requests.
//
//	go run ./examples/drone-delivery
//
//	ingestion ─POST /outbox─► ScheduleDelivery ─► CreatePackage ─► GetDrone ─► DroneAssigned
//	                              │                  │               │
//	                          delivery            package         scheduler        200 = done, 400 = retry
//
// Postgres, Kafka, relays and ambassadors run in this process; the ambassadors' files are those a container would mount.
package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/internal/sagahttp"
	"github.com/troupe-go/troupe/internal/sidecar"
	"github.com/troupe-go/troupe/migrations"
)

//go:embed *.yaml
var files embed.FS

// hops are in the flow's order.
var hops = []string{"delivery", "package", "scheduler"}

// servers has the addresses of the databases and the brokers, and the flow's name.
type servers struct {
	databases map[string]string // by hop
	brokers   []string
	flow      string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := alone(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "drone-delivery:", err)
		os.Exit(1)
	}
}

// alone runs everything on servers of its own.
func alone(ctx context.Context) (err error) {
	postgres, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, postgres.Close()) }()
	broker, err := devstack.StartKafka(ctx, devstack.KafkaConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()
	s := servers{databases: make(map[string]string), brokers: broker.Addrs(), flow: "drone"}
	for _, hop := range hops {
		if s.databases[hop], err = postgres.CreateDatabase(ctx, hop, ""); err != nil {
			return err
		}
	}
	return run(ctx, s, os.Stdout)
}

// run delivers three packages, and prints the requests to the services.
func run(ctx context.Context, s servers, out io.Writer) (err error) {
	out = &lines{to: out}
	drones := &scheduler{grants: map[string]int{"d-2": 2, "d-3": -1}}
	alerts := make(chan string, 1)
	chat := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case alerts <- "the on-call operator is notified":
		default:
		}
	}))
	defer chat.Close()
	ingest, err := freeAddress()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "drone-delivery-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	work, stop := context.WithCancel(ctx)
	defer stop()
	group, work := errgroup.WithContext(work)
	for hop, does := range map[string]func(string) bool{"delivery": always, "package": always, "scheduler": drones.free} {
		service := httptest.NewServer(serves(out, hop, does))
		defer service.Close()
		args := []string{"--service-url", service.URL, "--alert-url", chat.URL, "--partitions", "2"}
		if hop == "delivery" {
			args = append(args, "--outbox", ingest)
		}
		if err := s.startSidecars(work, group, dir, hop, args...); err != nil {
			return err
		}
	}
	events, err := kgo.NewClient(kgo.SeedBrokers(s.brokers...), kgo.ConsumeTopics(s.flow+".scheduler.events"), kgo.UnknownTopicRetries(-1),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		return err
	}
	defer events.Close()
	err = s.deliver(ctx, ingest, events, drones, alerts, out)
	stop()
	return errors.Join(err, group.Wait())
}

// startSidecars runs a service's ambassador, with the file that a container would mount, and its relay.
func (s servers) startSidecars(ctx context.Context, group *errgroup.Group, dir, hop string, args ...string) error {
	text, err := files.ReadFile(hop + ".yaml")
	if err != nil {
		return err
	}
	file := filepath.Join(dir, hop+".yaml")
	text = bytes.ReplaceAll(text, []byte("drone."), []byte(s.flow+"."))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	if err := migrations.Up(ctx, s.databases[hop]); err != nil {
		return err
	}
	environ := []string{"DATABASE_URL=" + s.databases[hop], "KAFKA_BROKERS=" + strings.Join(s.brokers, ",")}
	ambassador := sidecar.Program{
		Args:    append([]string{"--config", file, "--admin", "127.0.0.1:0", "--log-level", "error"}, args...),
		Environ: environ, Stdout: io.Discard, Stderr: io.Discard, Parts: sagahttp.NewServer,
	}
	relay := sidecar.Program{
		Args:    []string{"run", "--source", "poll", "--admin", "127.0.0.1:0", "--log-level", "error"},
		Environ: environ, Stdout: io.Discard, Stderr: os.Stderr,
	}
	group.Go(func() error { return ended(hop+"'s ambassador", ambassador.Ambassador(ctx)) })
	group.Go(func() error { return ended(hop+"'s relay", relay.Main(ctx)) })
	return nil
}

func ended(what string, status int) error {
	if status != 0 {
		return fmt.Errorf("%s ended with status %d", what, status)
	}
	return nil
}

// deliver runs three deliveries: the first gets a drone at once, the second after some tries, the third after a redrive.
func (s servers) deliver(ctx context.Context, ingest string, events *kgo.Client, drones *scheduler, alerts <-chan string, out io.Writer) error {
	for _, delivery := range []string{"d-1", "d-2", "d-3"} {
		fmt.Fprintln(out, delivery)
		if err := s.schedule(ctx, ingest, delivery); err != nil {
			return err
		}
		typ, err := next(ctx, events)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "  → %s\n", typ)
	}
	select {
	case line := <-alerts:
		fmt.Fprintf(out, "  the flow has stopped, its command is flagged, and %s\n", line)
	case <-ctx.Done():
		return ctx.Err()
	}
	drones.landed()
	pool, err := pgxpool.New(ctx, s.databases["scheduler"])
	if err != nil {
		return err
	}
	defer pool.Close()
	desk, err := repair.New(repair.Config{Pool: pool})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "a drone has landed: redrive")
	by := admin.Actor{Name: "ann", Reason: "a drone has landed"}
	if _, err := desk.Redrive(ctx, repair.Filter{Key: repair.Key("d-3")}, repair.RedriveConfig{By: by}); err != nil {
		return err
	}
	typ, err := next(ctx, events)
	fmt.Fprintf(out, "  → %s\n", typ)
	return err
}

// schedule is ingestion: it has no database, and posts to the outbox of the delivery's ambassador until it gets an answer.
func (s servers) schedule(ctx context.Context, ingest, delivery string) error {
	body, err := json.Marshal(map[string]any{
		"id": uuid.NewString(), "topic": s.flow + ".delivery.commands", "key": delivery, "type": "ScheduleDelivery",
		"payload": map[string]string{"delivery": delivery},
	})
	if err != nil {
		return err
	}
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+ingest+"/outbox", bytes.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/json")
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		if response, err := client.Do(r); err == nil {
			_ = response.Body.Close()
			if response.StatusCode < 300 {
				return nil
			}
			if response.StatusCode < 500 {
				return fmt.Errorf("POST /outbox: %s", response.Status)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// next waits for an event of the scheduler's.
func next(ctx context.Context, events *kgo.Client) (typ string, err error) {
	for ctx.Err() == nil {
		fetches := events.PollRecords(ctx, 1)
		for _, r := range fetches.Records() {
			for _, h := range r.Headers {
				if h.Key == "ce_type" {
					return string(h.Value), nil
				}
			}
		}
	}
	return "", ctx.Err()
}

// freeAddress returns an address with a free port below the system's range of ephemeral ports, so that no other process gets it.
func freeAddress() (string, error) {
	for tries := 1; ; tries++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(10_000)))
		if err == nil {
			return l.Addr().String(), l.Close()
		}
		if tries == 100 {
			return "", err
		}
	}
}

// lines is written to by several services.
type lines struct {
	mu sync.Mutex
	to io.Writer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(b)
}
