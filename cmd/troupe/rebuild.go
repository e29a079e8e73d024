package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/rebuilds"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/sidecar"
)

func newRebuild() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "rebuild",
		Short: "Let handlers of events read their topics again, from a time on",
		Long: `rebuild starts, lists and cancels rebuilds, in the database of one service (--database-url or DATABASE_URL). In a rebuild the members
of a group handle the messages of a handler's topics again, such as to fill a read model again after its handler was corrected
(docs/rebuild.md). A reset of the group's offsets with Kafka's tools does not do this. Start and cancel need a reason, and are recorded.`,
		Example: `  troupe rebuild list
  troupe rebuild show 1`,
	}, newRebuildStart(), newRebuildList(), newRebuildShow(), newRebuildCancel())
}

func newRebuildStart() *cobra.Command {
	var f deskFlags
	var spec rebuilds.Spec
	var from time.Time
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Start a rebuild of one or more handlers of a group",
		Long: `start prints what would be read again: the offset of each partition, the time of its first message, and at most how many messages
follow. After a confirmation it starts the rebuild. Messages of the topics that come during a rebuild are handled after it.

The handlers' writes to the outbox and their deadlines are discarded, unless --emit is set. If the state of the handlers must be cleared
first, stop the members of the group, clear it, start the rebuild, and start the members: messages that are handled between the two
have their effect twice. start refuses a rebuild that would wait for held messages or dead letters: let them end, or discard them
(troupe held list, troupe dlq list). With --wait the members begin it when they have ended; do not use it after the state was cleared.`,
		Example: `  troupe rebuild start --handler order.summary/PaymentCharged --handler order.summary/PaymentRefused --from 2026-01-01T00:00:00Z --reason 'ticket 4711' --dry-run`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec.From = from
			if len(spec.Handlers) == 0 || spec.From.IsZero() {
				return errors.New("want --handler and --from")
			}
			by, err := f.by(true)
			if err != nil {
				return err
			}
			program := sidecar.Program{Environ: os.Environ()}
			servers, err := program.Servers(cmd)
			if err != nil {
				return err
			}
			if servers.Database == nil || len(servers.Brokers) == 0 {
				return errors.New("want the service's database and the brokers: --database-url and --brokers, or DATABASE_URL and KAFKA_BROKERS")
			}
			if servers.InTheClear != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "Warning: %s; set kafka-tls.\n", servers.InTheClear)
			}
			pool, err := pgxpool.NewWithConfig(cmd.Context(), servers.Database)
			if err != nil {
				return failed(err)
			}
			defer pool.Close()
			client, err := kafka.NewClient(servers.Brokers, servers.Kafka...)
			if err != nil {
				return failed(err)
			}
			defer client.Close()
			desk := rebuilds.Desk{Pool: pool}
			plan, err := desk.Plan(cmd.Context(), client, spec)
			if err != nil {
				return failed(err)
			}
			action := fmt.Sprintf("handle at most %s again with %s", counted(plan.Messages(), "message", "messages"), strings.Join(spec.Handlers, ", "))
			if f.output.forPrograms() && f.dryRun {
				return f.output.encode(cmd.OutOrStdout(), plan)
			}
			if !f.output.forPrograms() {
				if err := printPlan(cmd.OutOrStdout(), plan); err != nil {
					return err
				}
			}
			if goOn, err := f.agree(cmd, action, by); !goOn || err != nil {
				return err
			}
			id, err := desk.Start(cmd.Context(), plan, by)
			if errors.Is(err, rebuilds.ErrWaits) {
				err = fmt.Errorf("%w: see troupe held list and troupe dlq list, or start it with --wait, unless the handlers' state was cleared", err)
			}
			if err != nil {
				return failed(err)
			}
			return f.output.result(cmd, map[string]any{"rebuild": id}, "Rebuild %d is started. The members of the group begin it within seconds: troupe rebuild show %d\n", id, id)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringSliceVar(&spec.Handlers, "handler", nil, "`name` of a handler, such as order.summary/PaymentCharged, or order.summary/all for OnAll; repeatable, required")
	momentVar(flags, &from, "from", "handle messages of this `time` or later: 2026-01-31T12:00:00Z, or 2h for two hours ago; required")
	flags.BoolVar(&spec.Emit, "emit", false, "let the handlers write to the outbox and schedule deadlines, as they did at first")
	flags.BoolVar(&spec.Wait, "wait", false, "start it although messages are held or dead letters are open: a partition begins when its held messages and the group's dead letters have ended")
	f.output.declare(cmd)
	f.declareAction(flags, "it is started; required")
	f.declareYes(flags)
	sidecar.DeclareServers(cmd)
	return cmd
}

// printPlan prints the partitions of a plan, and for which messages they wait.
func printPlan(w io.Writer, p rebuilds.Plan) error {
	t := newTable(w, "TOPIC", "PARTITION", "FROM", "FIRST", "MESSAGES")
	deleted := 0
	for _, of := range p.Partitions {
		t.row(of.Topic, fmt.Sprint(of.Partition), fmt.Sprint(of.From), stampOf(of.First), fmt.Sprint(of.Messages))
		if of.Deleted {
			deleted++
		}
	}
	if err := t.print(w); err != nil {
		return err
	}
	for _, note := range []struct {
		n    int
		text string
	}{
		{deleted, "%d of the partitions begin at or after --from: the topic's retention has deleted earlier messages, which cannot be handled again.\n"},
		{p.Held, "%d messages are held: a partition begins when none of its messages is. See troupe held list.\n"},
		{p.DeadLetters, "%d dead letters of the group are open, or redriven and not handled yet: no partition begins before they are handled or discarded. See troupe dlq list.\n"},
	} {
		if note.n > 0 {
			fmt.Fprintf(w, note.text, note.n)
		}
	}
	return nil
}

func newRebuildList() *cobra.Command {
	var f deskFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the newest 200 rebuilds with their progress",
		Example: `  troupe rebuild list
  troupe rebuild list --output json | jq '.rebuilds[] | select(.finished_at == null)'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pool, _, err := f.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer pool.Close()
			all, more, err := rebuilds.Desk{Pool: pool}.List(cmd.Context())
			if err != nil {
				return failed(err)
			}
			if f.output.forPrograms() {
				return f.output.encode(cmd.OutOrStdout(), map[string]any{"rebuilds": all, "more": more})
			}
			if len(all) == 0 {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "No rebuilds.")
				return err
			}
			t := newTable(cmd.OutOrStdout(), "ID", "STATE", "STARTED", "HANDLERS", "FROM", "MESSAGES")
			for _, r := range all {
				t.row(fmt.Sprint(r.ID), r.State(), stamp(r.StartedAt), oneLine(strings.Join(r.Handlers, ", "), 80), stamp(r.From), progressOf(r))
			}
			if err := t.print(cmd.OutOrStdout()); err != nil || !more {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "Older rebuilds are not listed.")
			return err
		},
	}
	f.declare(cmd)
	return cmd
}

// progressOf returns how many offsets of a rebuild were handled, of the partitions that have begun.
func progressOf(r rebuilds.Rebuild) string {
	if r.CancelledAt != nil {
		return "-"
	}
	return fmt.Sprintf("%d of %d", r.Done, r.Total)
}

// rebuildID reads the argument of a command on one rebuild.
func rebuildID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0, fmt.Errorf("%q: want the number of a rebuild, as troupe rebuild list prints it", text)
	}
	return id, nil
}

func newRebuildShow() *cobra.Command {
	var f deskFlags
	cmd := &cobra.Command{
		Use:     "show <id>",
		Short:   "Show the progress of a rebuild in each partition, and who started it",
		Example: "  troupe rebuild show 1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := rebuildID(args[0])
			if err != nil {
				return err
			}
			pool, _, err := f.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer pool.Close()
			r, partitions, changes, err := rebuilds.Desk{Pool: pool}.Show(cmd.Context(), id)
			if err != nil {
				return failed(err)
			}
			w := cmd.OutOrStdout()
			if f.output.forPrograms() {
				return f.output.encode(w, map[string]any{"rebuild": r, "partitions": partitions, "changes": changes})
			}
			emits := "their writes to the outbox are discarded"
			if r.Emit {
				emits = "they write to the outbox"
			}
			fmt.Fprintf(w, "rebuild %d of the group %s: %s\n", r.ID, oneLine(r.Group, 200), r.State())
			fmt.Fprintf(w, "handlers  %s; %s\n", oneLine(strings.Join(r.Handlers, ", "), 500), emits)
			fmt.Fprintf(w, "from      %s\n", stamp(r.From))
			fmt.Fprintf(w, "started   %s, finished %s\n", stamp(r.StartedAt), stampOf(r.FinishedAt))
			fmt.Fprintf(w, "messages  %s, in %d of %d partitions\n\n", progressOf(r), r.Begun, r.Partitions)
			t := newTable(w, "TOPIC", "PARTITION", "FROM", "NEXT", "UNTIL", "STATE")
			for _, p := range partitions {
				state := p.State()
				if r.CancelledAt != nil {
					state = r.State()
				}
				t.row(p.Topic, fmt.Sprint(p.Partition), fmt.Sprint(p.From), offsetOf(p.Next), offsetOf(p.Until), state)
			}
			if err := t.print(w); err != nil {
				return err
			}
			if left := r.Partitions - len(partitions); left > 0 {
				fmt.Fprintf(w, "%s not listed.\n", counted(left, "more partition is", "more partitions are"))
			}
			fmt.Fprintln(w)
			return printChanges(w, changes)
		},
	}
	f.declare(cmd)
	return cmd
}

func offsetOf(offset *int64) string {
	if offset == nil {
		return "-"
	}
	return fmt.Sprint(*offset)
}

func newRebuildCancel() *cobra.Command {
	var f deskFlags
	cmd := &cobra.Command{
		Use:   "cancel <id>",
		Short: "Cancel a rebuild; the effects of the messages that it has handled stay",
		Long: `cancel ends a rebuild before all its messages were handled again. The members continue with the first message that was not handled before
the rebuild. Held messages of the rebuild are dropped. The state that the rebuild has written stays as it is: start another rebuild, or
restore it.`,
		Example: `  troupe rebuild cancel 1 --reason 'ticket 4711' --dry-run
  troupe rebuild cancel 1 --reason 'ticket 4711'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := rebuildID(args[0])
			if err != nil {
				return err
			}
			by, err := f.by(true)
			if err != nil {
				return err
			}
			pool, _, err := f.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer pool.Close()
			desk := rebuilds.Desk{Pool: pool}
			r, _, _, err := desk.Show(cmd.Context(), id)
			if err != nil {
				return failed(err)
			}
			action := fmt.Sprintf("cancel rebuild %d of %s, after %s messages", id, oneLine(strings.Join(r.Handlers, ", "), 300), progressOf(r))
			if goOn, err := f.agree(cmd, action, by); !goOn || err != nil {
				return err
			}
			if err := desk.Cancel(cmd.Context(), id, by); err != nil {
				return failed(err)
			}
			return f.output.result(cmd, map[string]any{"done": true}, "The rebuild is cancelled. The members of the group notice it within seconds.\n")
		},
	}
	f.declare(cmd)
	flags := cmd.Flags()
	f.declareAction(flags, "it is cancelled; required")
	f.declareYes(flags)
	return cmd
}
