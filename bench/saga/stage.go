package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/bench/machine"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/topics"
)

//go:embed order.saga.json
var definition []byte

// A stage holds the servers.
type stage struct {
	sizes
	peers    list
	postgres *devstack.Postgres
	kafka    *devstack.Kafka
	version  string // of Postgres
	broker   string
	addrs    []string // of the broker
	made     int
	server   machine.Postgres
}

// settings fits a server that has the machine for itself: the cost of a checkpoint within a run would be part of the result.
var settings = map[string]string{
	"fsync": "on", "synchronous_commit": "on", "shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "30min",
	"min_wal_size": "2GB", "max_connections": "400",
}

// fill makes the files of the log exist, as on a server that has run for a while: a new file is filled with zeros and flushed
// during the measurement.
const fill = "SELECT count(pg_logical_emit_message(false, 'fill', repeat(' ', 1000000))) FROM generate_series(1, $1)"

const (
	template = "troupe_bench_saga"
	effects  = "CREATE TABLE effects (key text, step text, PRIMARY KEY (key, step))"
)

func (s *stage) open(ctx context.Context) (err error) {
	if s.postgres, err = devstack.OpenPostgres(ctx, devstack.PostgresConfig{Settings: settings}); err != nil {
		return err
	}
	if s.kafka, err = devstack.OpenKafka(ctx, devstack.KafkaConfig{}); err != nil {
		return err
	}
	s.broker, s.addrs = "embedded", s.kafka.Addrs()
	if address := os.Getenv("TROUPE_KAFKA"); address != "" {
		s.broker = address
	}
	conn, err := pgx.Connect(ctx, s.postgres.URL(""))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var fsync, commits string
	const ask = "SELECT current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit')"
	if err := conn.QueryRow(ctx, ask).Scan(&s.version, &fsync, &commits); err != nil {
		return err
	}
	if fsync != "on" || commits != "on" {
		return fmt.Errorf("TROUPE_POSTGRES has fsync %s and synchronous_commit %s: want both on", fsync, commits)
	}
	s.server = machine.PostgresOf(int(conn.PgConn().PID()))
	url, err := s.postgres.CreateDatabase(ctx, template, "")
	if err != nil {
		return err
	}
	if err := migrations.Up(ctx, url); err != nil {
		return err
	}
	own, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer own.Close(ctx)
	_, err = own.Exec(ctx, fill, s.fill)
	for _, sql := range []string{effects, "CHECKPOINT"} {
		if err == nil {
			_, err = own.Exec(ctx, sql)
		}
	}
	return err
}

func (s *stage) close() error {
	ctx := context.Background()
	var errs []error
	if s.kafka != nil {
		errs = append(errs, s.kafka.Close())
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.DropDatabase(ctx, template), s.postgres.Close())
	}
	return errors.Join(errs...)
}

// A system is the running order flow.
type system struct {
	s       *stage
	local   bool
	swift   bool // see task
	flow    string
	pool    *pgxpool.Pool // the coordinator's
	pools   []*pgxpool.Pool
	names   []string // of databases
	c       *coordinator.Coordinator
	running *errgroup.Group
	stop    context.CancelFunc
	ctx     context.Context

	mu    sync.Mutex
	waits map[string]chan saga.Status // by id
}

// prepare creates the databases of a system: the coordinator's, and one for each hop unless all is local.
func (s *stage) prepare(ctx context.Context, kind string) (y *system, err error) {
	y = &system{s: s, local: kind == "local", waits: make(map[string]chan saga.Status)}
	s.made++
	y.flow = fmt.Sprintf("bench-%d-%d", os.Getpid(), s.made)
	databases := 4
	if y.local {
		databases = 1
	}
	for range databases {
		if _, err := y.database(ctx); err != nil {
			return y, err
		}
	}
	y.pool = y.pools[0]
	return y, nil
}

func (s *stage) start(ctx context.Context, kind string) (*system, error) {
	y, err := s.prepare(ctx, kind)
	if err == nil {
		err = y.begin(ctx)
	}
	return y, err
}

// begin starts the system.
func (y *system) begin(ctx context.Context) error {
	ctx, y.stop = context.WithCancel(ctx)
	y.running, y.ctx = errgroup.WithContext(ctx)
	for i, hop := range []string{"payment", "inventory", "shipping"} {
		pool := y.pools[min(i+1, len(y.pools)-1)]
		p, err := y.participant(hop, pool)
		if err != nil {
			return err
		}
		switch hop {
		case "payment":
			participant.Handle(p, does[ChargePayment](PaymentCharged{"p-1"}))
		case "inventory":
			participant.Handle(p, does[ReserveStock](StockReserved{"r-1"}))
		case "shipping":
			participant.Handle(p, does[ShipOrder](OrderShipped{"s-1"}))
		}
		if err := y.run(p, pool); err != nil {
			return err
		}
	}
	p, err := y.coordinator(ctx)
	if err != nil {
		return err
	}
	return y.run(p, y.pool)
}

// coordinator makes y.c. It decides when its participant runs.
func (y *system) coordinator(ctx context.Context) (*participant.Participant, error) {
	d, err := saga.Parse(definition)
	if err != nil {
		return nil, err
	}
	p, err := y.participant("order", y.pool)
	if err != nil {
		return nil, err
	}
	y.c, err = coordinator.New(ctx, coordinator.Config{
		Participant: p, Pool: y.pool, Definitions: []*saga.Definition{d}, Decided: y.decided,
	})
	return p, err
}

func (y *system) database(ctx context.Context) (*pgxpool.Pool, error) {
	y.s.made++
	name := fmt.Sprintf("bench_saga_%d_%d", os.Getpid(), y.s.made)
	url, err := y.s.postgres.CreateDatabase(ctx, name, template)
	if err != nil {
		return nil, err
	}
	y.names = append(y.names, name)
	pool, err := connect(ctx, url)
	if err == nil {
		y.pools = append(y.pools, pool)
	}
	return pool, err
}

func connect(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 24
	return pgxpool.NewWithConfig(ctx, cfg)
}

func (y *system) participant(hop string, pool *pgxpool.Pool) (*participant.Participant, error) {
	cfg := participant.Config{Pool: pool, Hop: topics.MustHop(y.flow, hop), Local: y.local, Batch: 100, Concurrency: 1, Partitions: 1}
	if !y.local {
		cfg.Brokers = y.s.addrs
	}
	if y.swift {
		cfg.Kafka = []kgo.Opt{kgo.InstanceID("member-1")}
	}
	return participant.New(cfg)
}

func (y *system) run(p *participant.Participant, pool *pgxpool.Pool) error {
	y.running.Go(func() error { return p.Run(y.ctx) })
	if y.local {
		return nil
	}
	cfg := relay.Config{Pool: pool, Brokers: y.s.addrs, Service: p.Hop().Name()}
	if y.swift {
		cfg.Lease = time.Second
	}
	r, err := relay.New(cfg)
	if err != nil {
		return err
	}
	y.running.Go(func() error { return r.Run(y.ctx) })
	return nil
}

// decided wakes the caller that waits for a saga's end.
func (y *system) decided(d coordinator.Decided) {
	if !d.State.Ended() && d.State.Status != saga.Parked {
		return
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if ch := y.waits[d.ID]; ch != nil {
		delete(y.waits, d.ID)
		ch <- d.State.Status
	}
}

// one starts a saga and waits for its end.
func (y *system) one(ctx context.Context, key string) error {
	ended := make(chan saga.Status, 1)
	y.mu.Lock()
	y.waits["order/"+key] = ended
	y.mu.Unlock()
	_, err := y.c.Submit(ctx, "order", map[string]any{
		"order_id": key, "customer_id": "c-1", "amount_cents": 500, "title": 7, "quantity": 1,
	}, nil)
	if err != nil {
		return err
	}
	select {
	case status := <-ended:
		if status != saga.Completed {
			return fmt.Errorf("saga %s is %s", key, status)
		}
		return nil
	case <-time.After(time.Minute):
		return fmt.Errorf("saga %s has not ended after a minute", key)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close stops everything and drops the databases.
func (y *system) close() (err error) {
	if y.running != nil {
		y.stop()
		err = y.running.Wait()
	}
	for _, p := range y.pools {
		p.Close()
	}
	for _, name := range y.names {
		err = errors.Join(err, y.s.postgres.DropDatabase(context.Background(), name))
	}
	return err
}

// check counts effects: three for each saga that has ended, and no saga that has not.
func (y *system) check(ctx context.Context) error {
	var sagas, done, open int
	const counts = "SELECT count(*) FILTER (WHERE status = 'completed'), count(*) FILTER (WHERE status <> 'completed') FROM troupe.sagas"
	if err := y.pool.QueryRow(ctx, counts).Scan(&sagas, &open); err != nil {
		return err
	}
	for _, p := range y.pools {
		var n int
		if err := p.QueryRow(ctx, "SELECT count(*) FROM effects").Scan(&n); err != nil {
			return err
		}
		done += n
	}
	if open > 0 || done != 3*sagas {
		return fmt.Errorf("%d sagas completed, %d not, with %d effects: want three of each", sagas, open, done)
	}
	return nil
}

// The messages.
type (
	ChargePayment struct {
		OrderID string `json:"order_id"`
	}
	PaymentCharged struct {
		PaymentID string `json:"payment_id"`
	}
	ReserveStock struct {
		OrderID string `json:"order_id"`
	}
	StockReserved struct {
		ReservationID string `json:"reservation_id"`
	}
	ShipOrder struct {
		OrderID string `json:"order_id"`
	}
	OrderShipped struct {
		ShipmentID string `json:"shipment_id"`
	}
)

// does inserts a row and succeeds.
func does[T any](done any) func(context.Context, pgx.Tx, participant.Command[T]) (participant.Outcome, error) {
	return func(ctx context.Context, tx pgx.Tx, c participant.Command[T]) (participant.Outcome, error) {
		err := participant.Queue(ctx, tx, "INSERT INTO effects (key, step) VALUES ($1, $2)", string(c.Message.Key), c.Message.SagaStep)
		return participant.Succeed(done), err
	}
}
