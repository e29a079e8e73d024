package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/migrations"
)

// Settings returns the settings of a durable server that has the machine for itself, and more: the cost of a checkpoint during a run
// would be part of the result.
func Settings(more map[string]string) map[string]string {
	all := map[string]string{
		"fsync": "on", "synchronous_commit": "on", "shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "30min",
	}
	maps.Copy(all, more)
	return all
}

// Servers holds the servers of a benchmark.
type Servers struct {
	Postgres *devstack.Postgres
	Kafka    *devstack.Kafka
	Client   *kgo.Client
	Version  string // of Postgres
	Broker   string // "embedded", or the address
	Server   Postgres

	template string
	names    int
}

// Open opens Postgres with further settings, Kafka, and a client with the options.
func (s *Servers) Open(ctx context.Context, settings map[string]string, options ...kgo.Opt) (err error) {
	if s.Postgres, err = devstack.OpenPostgres(ctx, devstack.PostgresConfig{Settings: Settings(settings)}); err != nil {
		return err
	}
	if s.Kafka, err = devstack.OpenKafka(ctx, devstack.KafkaConfig{}); err != nil {
		return err
	}
	s.Broker = Broker()
	if s.Client, err = kafka.NewClient(s.Kafka.Addrs(), options...); err != nil {
		return err
	}
	return s.Describe(ctx, s.Postgres.URL(""))
}

// Broker returns the address in TROUPE_KAFKA, or "embedded".
func Broker() string {
	if address := os.Getenv("TROUPE_KAFKA"); address != "" {
		return address
	}
	return "embedded"
}

// Describe reads the version and the process of Postgres. It returns an error unless commits are durable.
func (s *Servers) Describe(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var fsync, commits string
	const settings = "SELECT current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit')"
	if err := conn.QueryRow(ctx, settings).Scan(&s.Version, &fsync, &commits); err != nil {
		return err
	}
	if fsync != "on" || commits != "on" {
		return fmt.Errorf("TROUPE_POSTGRES has fsync %s and synchronous_commit %s: want both on", fsync, commits)
	}
	s.Server = PostgresOf(int(conn.PgConn().PID()))
	return nil
}

// Template creates the database that later ones are copies of, with Troupe's tables, and executes the statements there.
func (s *Servers) Template(ctx context.Context, name string, statements ...string) error {
	url, err := s.Postgres.CreateDatabase(ctx, name, "")
	if err != nil {
		return err
	}
	s.template = name
	if err := migrations.Up(ctx, url); err != nil {
		return err
	}
	return Execute(ctx, url, statements...)
}

// Header returns a benchmark's first line.
func (s *Servers) Header() string {
	return fmt.Sprintf("%s, load %s, Postgres %s, broker %s", Platform(), Load(), s.Version, s.Broker)
}

// Close stops the servers.
func (s *Servers) Close() error {
	var errs []error
	if s.Client != nil {
		s.Client.Close()
	}
	if s.Kafka != nil {
		errs = append(errs, s.Kafka.Close())
	}
	if s.Postgres != nil {
		if s.template != "" {
			errs = append(errs, s.Postgres.DropDatabase(context.Background(), s.template))
		}
		errs = append(errs, s.Postgres.Close())
	}
	return errors.Join(errs...)
}

// Name returns a name that no other part of this benchmark has.
func (s *Servers) Name(prefix string) string {
	s.names++
	return fmt.Sprintf("%s-%d-%d", prefix, os.Getpid(), s.names)
}

// Produce produces n records and waits until the broker has all of them.
func (s *Servers) Produce(ctx context.Context, n int, record func(i int) *kgo.Record) error {
	first := kgo.FirstErrPromise{}
	for i := range n {
		s.Client.Produce(ctx, record(i), first.Promise())
	}
	return errors.Join(s.Client.Flush(ctx), first.Err())
}

// A System is a set of databases, and of functions that run on them until Close.
type System struct {
	*Servers
	Flow    string // name of its flow
	Context context.Context

	databases []string
	pools     []*pgxpool.Pool
	running   *errgroup.Group
	stop      context.CancelFunc
}

// NewSystem returns a system without databases.
func (s *Servers) NewSystem(ctx context.Context) *System {
	y := &System{Servers: s, Flow: s.Name("bench")}
	ctx, y.stop = context.WithCancel(ctx)
	y.running, y.Context = errgroup.WithContext(ctx)
	return y
}

// Database creates a database with Troupe's tables.
func (y *System) Database(ctx context.Context, suffix string) (url string, err error) {
	name := strings.ReplaceAll(y.Flow, "-", "_") + suffix
	if url, err = y.Postgres.CreateDatabase(ctx, name, y.template); err != nil {
		return "", err
	}
	y.databases = append(y.databases, name)
	if y.template != "" {
		return url, nil
	}
	return url, migrations.Up(ctx, url)
}

// Pool opens a pool that Close closes, of at most that many connections; 0: the default.
func (y *System) Pool(ctx context.Context, url string, connections int) (*pgxpool.Pool, error) {
	pool, err := OpenPool(ctx, url, connections)
	if err == nil {
		y.pools = append(y.pools, pool)
	}
	return pool, err
}

// Go runs a function, whose error ends the system, until the system is closed.
func (y *System) Go(run func(context.Context) error) {
	y.running.Go(func() error { return run(y.Context) })
}

// Wait waits until all functions have returned, and returns the first error.
func (y *System) Wait() error { return y.running.Wait() }

// Close stops the functions and drops the databases.
func (y *System) Close() error {
	y.stop()
	errs := []error{y.running.Wait()}
	for _, p := range y.pools {
		p.Close()
	}
	for _, name := range y.databases {
		errs = append(errs, y.Postgres.DropDatabase(context.Background(), name))
	}
	return errors.Join(errs...)
}

// OpenPool opens a pool of at most that many connections; 0: the default.
func OpenPool(ctx context.Context, url string, connections int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	if connections > 0 {
		cfg.MaxConns = int32(connections)
	}
	return pgxpool.NewWithConfig(ctx, cfg)
}

// Execute executes statements on a connection of their own.
func Execute(ctx context.Context, url string, statements ...string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// Query returns the value of a query, on a connection of its own.
func Query[T any](ctx context.Context, url, sql string, args ...any) (value T, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return value, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := conn.QueryRow(ctx, sql, args...).Scan(&value); err != nil {
		return value, fmt.Errorf("%s: %w", sql, err)
	}
	return value, nil
}
