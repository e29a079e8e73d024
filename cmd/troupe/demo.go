package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/address"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/orders"
	"github.com/troupe-go/troupe/internal/demo/run"
	"github.com/troupe-go/troupe/schemas"
)

// demoFlags holds the command-line flags of a run.
type demoFlags struct {
	orders   string
	limit    int
	fail     string
	style    string
	output   format
	timeout  time.Duration
	console  string
	previous string
	cfg      run.Config
}

func newDemo() *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the order flow on this machine, and check that nothing is lost or doubled",
		Long: `demo starts a Postgres, a Kafka broker and a schema registry, four services (order, payment,
inventory, shipping) and a relay for each, as separate processes. It posts orders over HTTP, waits
until each is completed, compensated or parked, and checks money, stock, shipments and messages
against each other. It needs no Docker, no root and no configuration. At the end it removes its
databases and topics; the logs stay.

With --style orchestration a saga in the order service sends the commands of the flow; with --style
choreography each service reacts to the events of the others. Handlers, orders and checks are the
same.

With --console it also serves the pages of troupe console over all four services, and after the last
order continues until Ctrl-C; then it runs the checks. Your actions on the pages may make a check
fail.

With --chaos it kills services and relays, cuts their connections and delivers messages twice
during the run.

With --previous every process starts with that earlier version of troupe. While orders are posted, the
databases are migrated, and every process is replaced by this version, then by the earlier one, and
then by this one again: an upgrade, a rollback and another upgrade.

The orders file is CSV with the columns order_id, customer_id, placed_at, quantity and amount. The
whole file is checked before the run. Without one, the program uses its own 400 orders.

Exit status: 0 every check holds, 1 one does not or the run failed, 2 wrong usage.`,
		Example: `  troupe demo
  troupe demo --orders orders.csv --fail payment=2%,inventory=3%,shipping=5% --chaos
  troupe demo --style choreography --chaos
  troupe demo --previous ./troupe-0.1
  troupe demo --brokers localhost:9092 --postgres postgres://postgres@localhost/postgres --output json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.config(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if f.console != "" {
				if cfg.Alongside, err = besideDemo(f.console, cmd.ErrOrStderr()); err != nil {
					return err
				}
			}
			return runDemo(cmd.Context(), cfg, f.output, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.orders, "orders", "", "`file.csv` of orders (default: 400 that ship with the program)")
	flags.IntVar(&f.limit, "limit", 0, "post only the first `n` orders (default: all)")
	flags.StringVar(&f.style, "style", string(demo.Orchestration), "how the services work together: `orchestration|choreography`")
	flags.StringVar(&f.fail, "fail", "", "`shares` of orders that hops refuse: payment=2%,inventory=3%,shipping=5%")
	flags.BoolVar(&f.cfg.Chaos, "chaos", false, "kill processes, cut connections and deliver messages twice during the run")
	flags.StringVar(&f.previous, "previous", "", "`program` of an earlier version: upgrade from it, roll back and upgrade again during the run")
	flags.StringVar(&f.console, "console", "", "serve a console on `host:port`, of this machine, and stay up")
	flags.Lookup("console").NoOptDefVal = consoleAddress
	flags.Int64Var(&f.cfg.Seed, "seed", 1, "`number` from which the refused orders and the actions of chaos are derived")
	flags.Float64Var(&f.cfg.Rate, "rate", 0, "`orders` to post a second; at a rate below the machine's limit, latencies contain no queueing (default: no limit)")
	flags.StringVar(&f.cfg.Postgres, "postgres", "", "`URL` of a server where databases may be made [TROUPE_POSTGRES] (default: one is started)")
	flags.StringVar(&f.cfg.Kafka, "brokers", "", "`host:port,...` of brokers [TROUPE_KAFKA] (default: one is started)")
	flags.StringVar(&f.cfg.Registry, "registry", "", "`URL` of a schema registry [TROUPE_REGISTRY] (default: one is started)")
	flags.BoolVar(&f.cfg.Keep, "keep", false, "keep databases, topics and groups; of servers that are started, their folders")
	flags.DurationVar(&f.timeout, "timeout", 2*time.Minute, "give up when no order has moved for this `time`")
	f.output.declare(cmd)
	return cmd
}

// config reads the files that the flags name, and validates the flags before anything is started. Flags take precedence over the
// environment.
func (f *demoFlags) config(stderr io.Writer) (run.Config, error) {
	cfg := f.cfg
	cfg.Postgres = cmp.Or(cfg.Postgres, os.Getenv("TROUPE_POSTGRES"))
	cfg.Kafka = cmp.Or(cfg.Kafka, os.Getenv("TROUPE_KAFKA"))
	cfg.Registry = cmp.Or(cfg.Registry, os.Getenv("TROUPE_REGISTRY"))
	var err error
	if cfg.Postgres != "" {
		if _, err := address.ParseConn(cfg.Postgres); err != nil {
			return cfg, fmt.Errorf("--postgres or TROUPE_POSTGRES: %w", err)
		}
	}
	if _, err := address.ParseBrokers(cfg.Kafka); err != nil {
		return cfg, fmt.Errorf("--brokers or TROUPE_KAFKA: %w", err)
	}
	if cfg.Registry != "" {
		if _, err := schemas.NewRegistry(cfg.Registry); err != nil {
			return cfg, fmt.Errorf("--registry or TROUPE_REGISTRY: %w", err)
		}
	}
	if cfg.Fail, err = demo.ParseFail(f.fail); err != nil {
		return cfg, fmt.Errorf("--fail: %w", err)
	}
	if cfg.Style, err = demo.ParseStyle(f.style); err != nil {
		return cfg, fmt.Errorf("--style: %w", err)
	}
	switch {
	case f.limit < 0:
		return cfg, fmt.Errorf("--limit %d: want 1 or more", f.limit)
	case !(cfg.Rate >= 0 && cfg.Rate <= 1e6): // the comparison also refuses NaN
		return cfg, fmt.Errorf("--rate %g: want 0 to 1000000", cfg.Rate)
	case f.timeout <= 0:
		return cfg, fmt.Errorf("--timeout %s: want more than none", f.timeout)
	}
	cfg.Limit = f.timeout
	if cfg.Orders, err = readOrders(f.orders); err != nil {
		return cfg, failed(err)
	}
	if f.limit > 0 && f.limit < len(cfg.Orders) {
		cfg.Orders = cfg.Orders[:f.limit]
	}
	self, err := os.Executable()
	if err != nil {
		return cfg, failed(err)
	}
	cfg.Program = []string{self}
	if f.previous != "" {
		if f.previous, err = exec.LookPath(f.previous); err != nil {
			return cfg, fmt.Errorf("--previous: %w: want the path of the program troupe of an earlier version", err)
		}
		cfg.Previous = []string{f.previous}
	}
	cfg.Progress, cfg.Width = stderr, terminalWidth(stderr)
	return cfg, nil
}

func readOrders(path string) ([]orders.Order, error) {
	if path == "" {
		return orders.Sample()
	}
	return orders.ReadFile(path)
}

func runDemo(ctx context.Context, cfg run.Config, output format, stdout io.Writer) error {
	result, err := run.Run(ctx, cfg)
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		made := "removed"
		if cfg.Keep {
			made = "kept"
		}
		return failed(fmt.Errorf("interrupted: every process was stopped; databases and topics are %s (logs: %s)", made, result.Folder))
	case err != nil:
		return failed(err)
	}
	if output.forPrograms() {
		err = output.encode(stdout, result)
	} else {
		err = result.Table(stdout)
	}
	if err == nil && !result.OK {
		return exit{status: exitFailed}
	}
	return failed(err)
}
