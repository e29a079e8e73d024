// Package containers starts the servers of a flow in Docker, for tests: Postgres, Apache Kafka, a schema registry, and a relay
// for each database, connected to each other. It is a module of its own, so that services which do not use it do not need
// testcontainers. Import it in tests only.
//
//	┌─ test process ─┐          ┌──────────────── a network of its own ────────────────┐
//	│ the service    │ ───────► │ Postgres ◄── relay ──► Apache Kafka ◄── registry     │
//	└────────────────┘          └──────────────────────────────────────────────────────┘
//
// Most tests of handlers do not need it: testkit starts Postgres and a broker without Docker, in a
// second. Use this package if a test is about the relay that runs in production, or about Kafka itself.
//
// Start needs a Docker engine, which testcontainers finds, for example by DOCKER_HOST. It returns when all servers answer. The machine's Go
// compiles the relay, in the version of Troupe that the service's go.mod requires; the first time, this takes a minute or more. If pulling
// the images and compiling need more than ten minutes, go test ends the tests: run them with -timeout 30m once. The containers are
// removed by Close, and by testcontainers' reaper if the process is killed.
package containers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/network"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/migrations"
)

const (
	startLimit = 30 * time.Minute // the first start pulls images and compiles the relay
	closeLimit = 2 * time.Minute
)

// Config configures a Stack. The zero value is Postgres with one database, Kafka, and a relay.
type Config struct {
	// Databases are the names of the databases. Each gets Troupe's tables, and a relay with the same name as its service. Default:
	// one database, "service".
	Databases []string
	// NoRelays starts no relays.
	NoRelays bool
	// RelayEnv holds environment variables of all relays, such as OUTBOX_RELAY_SOURCE. Postgres runs with wal_level=logical, so
	// the source wal works.
	RelayEnv map[string]string
	// Registry starts a schema registry, too.
	Registry bool
	// Images names the images to use. An empty field means the default.
	Images Images
}

// Images names the images of the servers.
type Images struct {
	Postgres string // default: postgres:17
	Kafka    string // default: apache/kafka:4.3.1; an image of Apache Kafka, whose settings are variables KAFKA_…
	Registry string // default: apicurio/apicurio-registry:3.3.3
	Relay    string // default: built from the service's version of Troupe, as Troupe's Dockerfile does
}

// A Stack is a set of running servers. Its methods return addresses for the test process, not for the network of the containers.
type Stack struct {
	cfg      Config
	network  *testcontainers.DockerNetwork
	postgres string // host:port
	kafka    string
	registry string
	relays   map[string]testcontainers.Container

	mu  sync.Mutex
	all []testcontainers.Container
}

// New starts a Stack for a test, and removes it at the test's Cleanup. It fails the test if a server does not start.
func New(t testing.TB, cfg Config) *Stack {
	t.Helper()
	s, err := Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// Start starts a Stack, for TestMain and programs. After an error nothing is left running.
func Start(ctx context.Context, cfg Config) (_ *Stack, err error) {
	if len(cfg.Databases) == 0 {
		cfg.Databases = []string{"service"}
	}
	cfg.Images = Images{
		Postgres: cmp.Or(cfg.Images.Postgres, "postgres:17"), Kafka: cmp.Or(cfg.Images.Kafka, "apache/kafka:4.3.1"),
		Registry: cmp.Or(cfg.Images.Registry, "apicurio/apicurio-registry:3.3.3"), Relay: cfg.Images.Relay,
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	s := &Stack{cfg: cfg, relays: make(map[string]testcontainers.Container)}
	defer func() {
		if err != nil {
			err = fmt.Errorf("containers: %w", errors.Join(err, s.Close()))
		}
	}()
	if s.network, err = network.New(ctx); err != nil {
		return nil, fmt.Errorf("no network: does a Docker engine answer? %w", err)
	}
	// The first error cancels the start of the other servers.
	servers, starting := errgroup.WithContext(ctx)
	servers.Go(func() error { return named("Postgres", s.startPostgres(starting)) })
	servers.Go(func() error { return named("Kafka", s.startKafka(starting)) })
	if cfg.Registry {
		servers.Go(func() error { return named("registry", s.startRegistry(starting)) })
	}
	if !cfg.NoRelays && cfg.Images.Relay == "" {
		servers.Go(func() (err error) {
			s.cfg.Images.Relay, err = buildRelay(starting)
			return named("image of the relay", err)
		})
	}
	if err := servers.Wait(); err != nil {
		return nil, err
	}
	for _, name := range cfg.Databases {
		if err := s.createDatabase(ctx, name); err != nil {
			return nil, fmt.Errorf("database %s: %w", name, err)
		}
	}
	if cfg.NoRelays {
		return s, nil
	}
	for _, name := range cfg.Databases {
		if err := s.startRelay(ctx, name); err != nil {
			return nil, fmt.Errorf("relay of %s: %w", name, err)
		}
	}
	return s, nil
}

func named(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

func (s *Stack) createDatabase(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, s.DatabaseURL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return err
	}
	return migrations.Up(ctx, s.DatabaseURL(name))
}

// DatabaseURL returns the URL of a database, with the rights of a superuser.
func (s *Stack) DatabaseURL(name string) string {
	return fmt.Sprintf("postgres://postgres:%s@%s/%s?sslmode=disable", password, s.postgres, name)
}

// Brokers returns Kafka's bootstrap addresses.
func (s *Stack) Brokers() []string { return []string{s.kafka} }

// RegistryURL returns the URL of the registry's Confluent API; "" without Config.Registry.
func (s *Stack) RegistryURL() string { return s.registry }

// Relay returns the container of a database's relay, to stop, to start again and to read its log. It is nil for another name.
func (s *Stack) Relay(database string) testcontainers.Container { return s.relays[database] }

// Setenv sets the variables with which testkit and its packages use these servers instead of starting their own: TROUPE_POSTGRES,
// TROUPE_KAFKA and, with Config.Registry, TROUPE_REGISTRY. Call it in TestMain, before the first test.
func (s *Stack) Setenv() error {
	vars := map[string]string{"TROUPE_POSTGRES": s.DatabaseURL("postgres"), "TROUPE_KAFKA": s.kafka}
	if s.registry != "" {
		vars["TROUPE_REGISTRY"] = s.registry
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		errs = append(errs, os.Setenv(name, vars[name]))
	}
	return errors.Join(errs...)
}

// Close removes the containers and their network. Data is lost.
func (s *Stack) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, c := range slices.Backward(s.all) {
		errs = append(errs, testcontainers.TerminateContainer(c, testcontainers.StopContext(ctx), testcontainers.StopTimeout(time.Second)))
	}
	s.all = nil
	if s.network != nil {
		errs = append(errs, s.network.Remove(ctx))
		s.network = nil
	}
	return errors.Join(errs...)
}

// run starts a container in the network. Close removes it even if it does not become ready. The error then contains the end of its log.
func (s *Stack) run(ctx context.Context, image, alias string, options ...testcontainers.ContainerCustomizer) (testcontainers.Container, error) {
	c, err := testcontainers.Run(ctx, image, append(options, network.WithNetwork([]string{alias}, s.network))...)
	if c != nil {
		s.mu.Lock()
		s.all = append(s.all, c)
		s.mu.Unlock()
	}
	if err != nil {
		return nil, errors.Join(err, lastLines(c))
	}
	return c, nil
}

// lastLines returns the end of a container's log as an error.
func lastLines(c testcontainers.Container) error {
	if c == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	text, err := readLog(ctx, c)
	if err != nil || text == "" {
		return err
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return fmt.Errorf("its last lines:\n%s", strings.Join(lines[max(0, len(lines)-20):], "\n"))
}
