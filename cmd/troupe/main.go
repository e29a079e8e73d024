// Command troupe is Troupe's command line: the demo, which runs the whole order flow on one machine, the operator's commands to
// examine and repair failures, and schemas.
//
// Exit status: 0 done, 1 failed, 2 wrong usage, in which case nothing was started.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/address"
	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/plain"
)

// Exit statuses.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	plain.StandardLog(os.Stderr)
	// The first signal stops everything in order; a second one ends the process at once, and its children with it.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// exit is the exit status of a command. main still prints the reason, if there is one.
type exit struct {
	status int
	reason error
}

func (e exit) Error() string { return fmt.Sprintf("exit status %d: %v", e.status, e.reason) }
func (e exit) Unwrap() error { return e.reason }

// failed returns the error of a command that was used correctly; nil stays nil. An admin.FieldError is wrong usage of the flag of
// that name.
func failed(reason error) error {
	if reason == nil {
		return nil
	}
	var field admin.FieldError
	if errors.As(reason, &field) {
		return fmt.Errorf("--%w", field)
	}
	return exit{exitFailed, reason}
}

func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	end := exit{exitUsage, err} // cobra's own errors: unknown commands, flags and arguments
	errors.As(err, &end)
	if end.reason != nil {
		_, _ = fmt.Fprintf(stderr, "troupe: %s\n", plain.Lines(address.Redact(end.reason.Error())))
		if end.status == exitUsage {
			_, _ = fmt.Fprintln(stderr, "(--help says more)")
		}
	}
	return end.status
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "troupe",
		Short:         "Choreography of services over Kafka and Postgres",
		Example:       "  troupe demo\n  troupe demo --limit 100 --fail payment=2%,inventory=3%,shipping=5% --chaos",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          helpAndFail,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newDemo(), newConsole(), newInit(), newDev(), newDoctor(), newAmbassador(), newTrace(), newDLQ(), newHeld(), newBatch(), newInbox(), newExpectation(), newActions(), newSaga(), newSchedule(), newRebuild(), newErase(), newFlow(), newWatch(), newSchema(),
		newCompletion(), newVersion(), newChild())
	completeValues(root)
	nameArguments(root)
	return root
}

// parent adds subcommands to cmd. Without a subcommand, cmd prints its help and fails.
func parent(cmd *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	cmd.Args, cmd.RunE = cobra.NoArgs, helpAndFail
	cmd.AddCommand(subcommands...)
	return cmd
}

func helpAndFail(cmd *cobra.Command, _ []string) error {
	cmd.SetOut(cmd.ErrOrStderr())
	_ = cmd.Help()
	return exit{status: exitUsage}
}

// nameArguments makes each command name its arguments if their number is wrong: cobra reports only the number.
func nameArguments(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		nameArguments(sub)
	}
	_, arguments, has := strings.Cut(strings.Replace(cmd.Use, " [flags]", "", 1), " ")
	check := cmd.Args
	if !has || check == nil {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return fmt.Errorf("%w: want %s %s", err, cmd.CommandPath(), arguments)
		}
		return nil
	}
}
