package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/address"
	"github.com/troupe-go/troupe/internal/ambassador"
	"github.com/troupe-go/troupe/internal/plain"
)

// Exit statuses.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// A Program is one run of outbox-relay.
type Program struct {
	Args           []string // without the program's name
	Stdout, Stderr io.Writer
	Environ        []string // KEY=value; nil: the process's own

	Parts func() ambassador.Parts // required for Ambassador, not used by Main

	Kafka []kgo.Opt       // for the relay's client, applied after its own options; not used by check
	Dial  pgconn.DialFunc // for the relay's database connections; nil: pgx's own
}

// Main runs the program and returns its exit status. It returns when ctx ends: the command run drains first.
func (p Program) Main(ctx context.Context) int {
	if p.Environ == nil {
		p.Environ = os.Environ()
	}
	return p.execute(ctx, p.root())
}

// execute runs a command tree, and prints an error to standard error.
func (p Program) execute(ctx context.Context, root *cobra.Command) int {
	root.SetArgs(p.Args)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	var quiet reported
	if !errors.As(err, &quiet) {
		_, _ = fmt.Fprintf(p.Stderr, "%s: %s\n", root.CommandPath(), plain.Lines(address.Redact(err.Error())))
	}
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

// usageError is an error in the program's arguments or settings.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// reported is a failure that is already printed to standard output.
type reported struct{ error }

// Commands returns the program's command tree, for tests and documentation that list the commands.
func (p Program) Commands() *cobra.Command { return p.root() }

func (p Program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "outbox-relay",
		Short: "Publish the rows of a service's outbox table to Kafka",
		Long: `outbox-relay publishes to Kafka the rows that a service inserts into troupe.outbox.

DATABASE_URL and KAFKA_BROKERS are enough to run. Settings come from flags, else from the
environment, else from the file of --config.`,
		Example: `  export DATABASE_URL=postgres://shop:…@127.0.0.1:5432/shop KAFKA_BROKERS=127.0.0.1:9092
  outbox-relay migrate
  outbox-relay check
  outbox-relay run`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q; see outbox-relay --help", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = cmd.Help()
			return usageError{errors.New("no command")}
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(misusedFlag)
	root.AddCommand(p.runCommand(), p.migrateCommand(), p.retainCommand(), p.statusCommand(), p.checkCommand(), p.parkedCommand(),
		p.pauseCommand(), p.resumeCommand(), p.grantsCommand(), p.schemaCommand(), p.healthCommand(), p.versionCommand())
	return root
}

func misusedFlag(cmd *cobra.Command, err error) error {
	return usagef("%w; see %s --help", err, cmd.CommandPath())
}

// noArguments is cobra.NoArgs with an error of usage.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no arguments, got %q", cmd.CommandPath(), args)
	}
	return nil
}
