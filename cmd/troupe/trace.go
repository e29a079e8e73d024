package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/address"
	"github.com/troupe-go/troupe/internal/admin/timeline"
	"github.com/troupe-go/troupe/internal/credentials"
	"github.com/troupe-go/troupe/internal/demo/run"
	"github.com/troupe-go/troupe/schemas"
)

// traceFlags holds the flags for the servers to read.
type traceFlags struct {
	databases []string
	files     map[string]string // files that URLs of databases were read from, by name
	brokers   string
	registry  string
	cfg       timeline.Config
	demo      string
	payload   bool
	output    format

	application string // application_name of the connections; default "troupe trace"
	connections int32  // maximum for each database; default 2
}

func newTrace() *cobra.Command {
	var f traceFlags
	cmd := &cobra.Command{
		Use:   "trace <key or id>",
		Short: "Follow a business key or a flow over all hops",
		Long: `trace prints the commands and events of a flow in the order of their causes, with rows that wait in an
outbox, held messages and dead letters; and below, the messages that the flow waits for. It reads the
topics of the flow and the given databases, and changes nothing. It lists servers that it could not read.

The argument is a business key, such as an order's id; or a correlation id, the ce_id of a message or
the id of a dead letter. For a key, trace reads one partition per topic. For the others it reads all
partitions, which takes longer. If topics got more partitions since, use --scan-all with a key, too.

AFTER is the time since the entry in BY, which caused it. Times come from the databases' clocks.

Exit status: 0 a server was read, 1 none could be read, or reading failed, 2 wrong usage.`,
		Example: `  troupe trace o-1001 --brokers localhost:9092 --flow order
  troupe trace o-1001 --brokers localhost:9092 --flow order --registry http://localhost:8081 --payload \
    --database order=postgres://localhost/order --database payment=postgres://localhost/payment
  troupe demo --keep && troupe trace cdnow-00001 --demo /tmp/troupe-demo-2029050850
  troupe trace 0199a5e0-7c1d-7d3a-9d0b-6f3b1c2d4e5f --since 72h --output json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&f.databases, "database", nil, "`name=URL` of a service's database, repeatable; better in the environment, since others can see a command line [TROUPE_DATABASES, with blanks between; else DATABASE_URL]")
	flags.StringVar(&f.brokers, "brokers", "", "`host:port,...` of brokers [KAFKA_BROKERS, if --flow or --topic is set]")
	flags.StringVar(&f.cfg.Flow, "flow", "", "`name` of the flow, the first part of its topics and groups [TROUPE_FLOW]")
	flags.StringSliceVar(&f.cfg.Topics, "topic", nil, "`name` of another topic to read, repeatable")
	flags.StringSliceVar(&f.cfg.Groups, "group", nil, "`name` of a consumer group that does not begin with the flow's, repeatable")
	flags.StringVar(&f.registry, "registry", "", "`URL` of the schema registry, to show Avro payloads [SCHEMA_REGISTRY_URL]")
	flags.StringVar(&f.demo, "demo", "", "`folder` of a troupe demo --keep, to look at its data")
	flags.DurationVar(&f.cfg.Since, "since", 24*time.Hour, "`time` to look back in the topics")
	flags.BoolVar(&f.cfg.ScanAll, "scan-all", false, "read all partitions, also for a key")
	flags.Int64Var(&f.cfg.MaxRecords, "max-records", 1_000_000, "read at most `n` records")
	flags.DurationVar(&f.cfg.Timeout, "timeout", 10*time.Second, "longest `time` to wait for one answer of a server")
	flags.BoolVar(&f.payload, "payload", false, "show payloads in the table, too (JSON has them always)")
	f.output.declare(cmd)
	return cmd
}

func (f *traceFlags) run(cmd *cobra.Command, subject string) error {
	end, err := f.openDemo(cmd.Context())
	if err != nil {
		return failed(err)
	}
	defer end()
	if len(f.databases) == 0 && f.demo == "" {
		f.databases = namedDatabases()
	}
	cfg, err := f.config(cmd.Context())
	defer func() {
		for _, d := range cfg.Databases {
			d.Pool.Close()
		}
	}()
	if err != nil {
		return err
	}
	cfg.Progress = func(read, of int64) {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "read %d of %d records\n", read, of)
	}
	t, err := timeline.Read(cmd.Context(), cfg, subject)
	if err != nil {
		return failed(err)
	}
	if f.output.forPrograms() {
		err = f.output.encode(cmd.OutOrStdout(), t)
	} else {
		err = tracePrinter{w: cmd.OutOrStdout(), payload: f.payload}.print(t)
	}
	if err == nil && t.Partitions == 0 && len(t.Entries) == 0 && len(t.Unseen) >= len(cfg.Databases)+min(len(cfg.Brokers), 1) {
		err = errors.New("no server could be read")
	}
	return failed(err)
}

// openDemo opens the servers of a kept demo, and makes them the servers to read.
func (f *traceFlags) openDemo(ctx context.Context) (end func(), err error) {
	if f.demo == "" {
		return func() {}, nil
	}
	kept, err := run.OpenKept(ctx, f.demo)
	if err != nil {
		return nil, err
	}
	f.brokers, f.cfg.Flow, f.databases = strings.Join(kept.Brokers, ","), kept.Flow, nil
	for _, name := range slices.Sorted(maps.Keys(kept.Databases)) {
		f.databases = append(f.databases, name+"="+kept.Databases[name])
	}
	return func() { _ = kept.Close() }, nil
}

// config validates the flags before anything is queried. Flags take precedence over the environment.
func (f *traceFlags) config(ctx context.Context) (timeline.Config, error) {
	cfg := f.cfg
	f.registry, cfg.Flow = cmp.Or(f.registry, os.Getenv("SCHEMA_REGISTRY_URL")), cmp.Or(cfg.Flow, os.Getenv("TROUPE_FLOW"))
	if f.brokers == "" && (cfg.Flow != "" || len(cfg.Topics) > 0) { // a shell of a service has KAFKA_BROKERS in any case
		f.brokers = os.Getenv("KAFKA_BROKERS")
	}
	if len(f.databases) == 0 {
		f.databases = strings.Fields(os.Getenv("TROUPE_DATABASES"))
	}
	var err error
	if cfg.Brokers, err = address.ParseBrokers(f.brokers); err != nil {
		return cfg, fmt.Errorf("--brokers or KAFKA_BROKERS: %w", err)
	}
	if len(cfg.Brokers) > 0 {
		if cfg.Kafka, err = kafkaIdentity(); err != nil {
			return cfg, err
		}
	}
	switch {
	case len(cfg.Brokers) == 0 && len(f.databases) == 0:
		return cfg, errors.New("no server is given: want --brokers with --flow, or --database name=URL, or both (or KAFKA_BROKERS, TROUPE_FLOW, TROUPE_DATABASES)")
	case len(cfg.Brokers) > 0 && cfg.Flow == "" && len(cfg.Topics) == 0:
		return cfg, errors.New("--brokers: want --flow as well, the first part of the topics' names (or TROUPE_FLOW)")
	case len(cfg.Brokers) == 0 && len(cfg.Topics)+len(cfg.Groups) > 0:
		return cfg, errors.New("--topic and --group: want --brokers as well")
	case cfg.Since <= 0 || cfg.Timeout <= 0 || cfg.MaxRecords <= 0:
		return cfg, errors.New("--since, --timeout and --max-records: want more than none")
	}
	if f.registry != "" {
		if cfg.Registry, err = schemas.NewRegistry(f.registry); err != nil {
			return cfg, fmt.Errorf("--registry: %w", err)
		}
	}
	for _, text := range f.databases {
		d, err := f.open(ctx, text)
		if err != nil {
			return cfg, err
		}
		cfg.Databases = append(cfg.Databases, d)
	}
	return cfg, nil
}

// open connects to nothing yet.
func (f *traceFlags) open(ctx context.Context, text string) (timeline.Database, error) {
	name, url, ok := strings.Cut(text, "=")
	if !ok || name == "" || strings.ContainsAny(name, ":/@ ") {
		// The error does not repeat the text: it may contain a password.
		return timeline.Database{}, errors.New("--database: want name=URL, such as payment=postgres://user@host/payment")
	}
	config, err := address.ParsePool(url)
	if err != nil {
		return timeline.Database{}, fmt.Errorf("--database %s: %w", name, err)
	}
	if path := f.files[name]; path != "" {
		config.BeforeConnect = credentials.URLFile(path)
	}
	pool, err := newPool(ctx, config, cmp.Or(f.application, "troupe trace"), cmp.Or(f.connections, 2))
	if err != nil {
		return timeline.Database{}, fmt.Errorf("--database %s: %w", name, err)
	}
	return timeline.Database{Name: name, Pool: pool}, nil
}

// tracePrinter writes a timeline for people.
type tracePrinter struct {
	w       io.Writer
	payload bool
}
