package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/internal/address"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/run"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/internal/plain"
	"github.com/troupe-go/troupe/internal/sidecar"
	"github.com/troupe-go/troupe/topics"
)

// devFlags holds the command-line flags of the development servers.
type devFlags struct {
	flow                    string
	postgresPort, kafkaPort int
	registryPort            int
	demo                    string
	servers                 string
	console                 string
}

// These values are also in the compose file of a new service.
const (
	devPostgresPort = 15433
	devKafkaPort    = 19093
	devRegistryPort = 18081
	devPassword     = "local"
)

// demoFlow is the flow of the demo's services.
const demoFlow = "order"

// demoOrder is printed with --demo.
const demoOrder = `
To place an order with the demo's services:

  curl -H 'Content-Type: application/json' -H 'Idempotency-Key: 1' -d '{"order_id":"o-1","customer_id":"c-1","placed_at":"1997-01-01","quantity":2,"amount":"29.33"}' http://127.0.0.1:8081/orders
`

var databaseRule = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

func newDev() *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{
		Use:   "dev DATABASE...",
		Short: "Run Postgres, Kafka, relays and the console for your services on this machine, without Docker",
		Long: `dev starts a Postgres with the named databases, one for each service; a Kafka broker; a schema registry; a relay for each database;
and the console for all of them. It prints the settings for your services, and runs until Ctrl-C. At the end all data is deleted. Name all your
services at the start: to add one you must start dev again, with empty databases.

With --demo, the four services of the demo's order flow run too, so that your service can react to their events. The service order accepts
orders at http://127.0.0.1:8081/orders; the others listen on the ports 8082 to 8084. The flow is then "order".

The addresses are the same as in the compose file that troupe init writes, so that all commands work with either. Postgres runs from
installed binaries, or from binaries that are downloaded once. The broker is franz-go's kfake, in this process: it speaks the
protocol, and is for development only; use --brokers for your own brokers. All servers listen on this machine only.

Exit status: 0 it was asked to stop, 1 it cannot go on, 2 wrong usage.`,
		Example: `  troupe dev seats
  troupe dev --flow booking seats tickets
  troupe dev --postgres-port 5433 --kafka-port 9093 --console 127.0.0.1:8091 seats
  troupe dev --demo points
  troupe dev --brokers 127.0.0.1:19092 seats`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.flow, "flow", "booking", "`name` of the flow, which the console shows")
	flags.IntVar(&f.postgresPort, "postgres-port", devPostgresPort, "`port` of Postgres; 0: a free one")
	flags.IntVar(&f.kafkaPort, "kafka-port", devKafkaPort, "`port` of Kafka; 0: a free one")
	flags.IntVar(&f.registryPort, "registry-port", devRegistryPort, "`port` of the schema registry; 0: a free one")
	flags.StringVar(&f.demo, "demo", "", "also run the demo's services of the order flow: `orchestration|choreography`")
	flags.Lookup("demo").NoOptDefVal = string(demo.Orchestration)
	flags.StringVar(&f.servers, "brokers", "", "`host:port,...` of brokers that run already (default: one is started)")
	flags.StringVar(&f.console, "console", consoleAddress, "`host:port` of the console, of this machine")
	return cmd
}

func (f *devFlags) run(cmd *cobra.Command, databases []string) error {
	style, err := demo.ParseStyle(f.demo)
	if err != nil {
		return fmt.Errorf("--demo: %w", err)
	}
	if f.demo != "" {
		if cmd.Flags().Changed("flow") && f.flow != demoFlow {
			return fmt.Errorf("--flow %s: with --demo the flow is %s: leave --flow out", f.flow, demoFlow)
		}
		f.flow = demoFlow
		databases = append(run.Services(), databases...)
	}
	for i, name := range databases {
		if databases[i] = strings.ReplaceAll(name, "-", "_"); !databaseRule.MatchString(databases[i]) {
			return fmt.Errorf("database %q: want lower-case letters, digits, - and _, beginning with a letter", name)
		}
		if slices.Contains(databases[:i], databases[i]) {
			return fmt.Errorf("database %q is named twice, or is one of the demo: give each service its own name", name)
		}
	}
	if _, err := topics.NewHop(f.flow, "any"); err != nil {
		return fmt.Errorf("--flow: %w", err)
	}
	for _, p := range []struct {
		flag string
		port int
	}{{"postgres-port", f.postgresPort}, {"kafka-port", f.kafkaPort}, {"registry-port", f.registryPort}} {
		if p.flag == "kafka-port" && f.servers != "" {
			continue
		}
		if err := free(p.port); err != nil {
			return failed(fmt.Errorf("--%s %d: %w: does a compose file or another troupe dev run? Stop it, or name another port", p.flag, p.port, err))
		}
	}
	console, err := besideDemo(f.console, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	return failed(f.serve(cmd.Context(), databases, style, console, cmd.ErrOrStderr()))
}

// free returns an error if another program listens on the port. Kafka listens much later, so the port may be taken by then.
func free(port int) error {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	return l.Close()
}

// serve starts the servers, then the programs that use them, and stops them in the reverse order.
func (f *devFlags) serve(ctx context.Context, databases []string, style demo.Style, console func(context.Context, run.World) error, stderr io.Writer) (err error) {
	log := zerolog.New(io.Discard)
	brokers, end, err := f.brokers(ctx, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	pg, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{Port: f.postgresPort, Password: devPassword, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Close()) }()
	registry, err := devstack.StartRegistryAt(ctx, f.registryPort)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, registry.Close()) }()

	w := run.World{Flow: f.flow, Brokers: brokers, Registry: registry.URL(), Databases: make(map[string]string)}
	for _, name := range databases {
		address, err := pg.CreateDatabase(ctx, name, "")
		if err != nil {
			return err
		}
		w.Databases[name] = withoutQuery(address)
		if err := runRelay(ctx, w, name, stderr, "migrate"); err != nil {
			return err
		}
	}
	said, up, kept := strings.Join(w.Brokers, ","), "Postgres, Kafka", "nothing is kept"
	if f.servers != "" {
		up, kept = "Postgres", "the databases are deleted at the end, the topics are kept"
	}
	_, _ = fmt.Fprintf(stderr, "%s and a relay for each database run until Ctrl-C; %s.\nIn the terminal of a service:\n\n", up, kept)
	named := make([]string, len(databases))
	for i, name := range databases {
		if f.demo == "" || i >= len(run.Services()) {
			_, _ = fmt.Fprintf(stderr, "  export DATABASE_URL=%s KAFKA_BROKERS=%s\n", w.Databases[name], said)
		}
		named[i] = name + "=" + w.Databases[name]
	}
	_, _ = fmt.Fprintf(stderr, "\nFor messages with schemas:\n\n  export SCHEMA_REGISTRY_URL=%s\n", w.Registry)
	if f.demo != "" {
		_, _ = fmt.Fprint(stderr, demoOrder)
	}
	_, _ = fmt.Fprintf(stderr, "\nFor troupe trace over all services:\n\n  export KAFKA_BROKERS=%s TROUPE_FLOW=%s TROUPE_DATABASES=%q\n\n",
		said, w.Flow, strings.Join(named, " "))
	g, ctx := errgroup.WithContext(ctx)
	for _, name := range databases {
		g.Go(func() error { return runRelay(ctx, w, name, stderr, "run") })
	}
	if f.demo != "" {
		g.Go(func() error { return run.Serve(ctx, w, style, zerolog.New(plain.Log(stderr)).Level(zerolog.WarnLevel)) })
	}
	g.Go(func() error { return console(ctx, w) })
	return g.Wait()
}

// brokers returns the named brokers, which must answer, or starts one; end stops it.
func (f *devFlags) brokers(ctx context.Context, log zerolog.Logger) (addresses []string, end func() error, err error) {
	if f.servers == "" {
		kafka, err := devstack.StartKafka(ctx, devstack.KafkaConfig{Port: f.kafkaPort, Log: log})
		if err != nil {
			return nil, nil, err
		}
		return kafka.Addrs(), kafka.Close, nil
	}
	if addresses, err = address.ParseBrokers(f.servers); err != nil {
		return nil, nil, fmt.Errorf("--brokers: %w", err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(addresses...))
	if err != nil {
		return nil, nil, fmt.Errorf("--brokers: %w", err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return nil, nil, fmt.Errorf("--brokers %s: %w", f.servers, err)
	}
	return addresses, func() error { return nil }, nil
}

// withoutQuery returns a URL without sslmode=disable, which a server without TLS does not need.
func withoutQuery(address string) string {
	before, _, _ := strings.Cut(address, "?")
	return before
}

// runRelay runs outbox-relay in this process. SIGTERM is no error.
func runRelay(ctx context.Context, w run.World, database string, stderr io.Writer, args ...string) error {
	status := sidecar.Program{
		Args: args, Stdout: io.Discard, Stderr: stderr,
		Environ: []string{
			"DATABASE_URL=" + w.Databases[database], "KAFKA_BROKERS=" + strings.Join(w.Brokers, ","), "SCHEMA_REGISTRY_URL=" + w.Registry,
			"OUTBOX_RELAY_SERVICE=" + database, "OUTBOX_RELAY_ADMIN=127.0.0.1:0", "OUTBOX_RELAY_LOG_LEVEL=error",
		},
	}.Main(ctx)
	if status != 0 && ctx.Err() == nil {
		return fmt.Errorf("outbox-relay %s ended with status %d", args[0], status)
	}
	return nil
}
