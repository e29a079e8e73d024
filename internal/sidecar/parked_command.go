package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/user"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
)

func (p Program) parkedCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "parked",
		Short: "See, retry or discard rows that wait for a person",
		Long: `parked works on the database, whether a relay runs or not. A parked row could not be published, and later
rows of its key wait behind it. Cure the cause and retry it, or discard it: then it is never
published, and the table troupe.outbox_repairs keeps it with who did it and why.`,
		Example: `  outbox-relay parked list
  outbox-relay parked retry 019aa6f0-7c1d-7d3a-9d0b-6f3b1c2d4e5f`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q; see outbox-relay parked --help", args[0])
			}
			_ = cmd.Help()
			return usageError{errors.New("no command")}
		},
	}
	cmd.AddCommand(p.parkedListCommand(), p.parkedShowCommand(),
		p.repairCommand("retry", retryParked, `retry lets parked rows be tried again at once, in their old place.`),
		p.repairCommand("discard", discardParked, `discard takes parked rows out of the outbox for good; what is behind them in their key goes on.
It wants a --reason. The table troupe.outbox_repairs keeps each with its payload.`))
	return cmd
}

// parkedSettings are those of all its commands.
var parkedSettings = append(slices.Clone(databaseSettings), output)

// with connects to the one outbox's database.
func (p Program) with(cmd *cobra.Command, do func(ctx context.Context, on desk) error) error {
	v, err := p.read(cmd, parkedSettings...)
	if err != nil {
		return err
	}
	of, err := v.table()
	if err != nil {
		return err
	}
	config, err := v.database()
	if err != nil {
		return err
	}
	form, err := v.oneOf(output)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), askLimit)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return do(ctx, desk{conn, of, form})
}

// A desk is where one command works.
type desk struct {
	conn *pgx.Conn
	of   tableOf
	form string // of the output
}

func (p Program) parkedListCommand() *cobra.Command {
	var topic string
	var after int64
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List parked rows, lowest position first",
		Example: `  outbox-relay parked list --topic order.payment.commands
  outbox-relay parked list --output json | jq -r '.rows[].id'`,
		Args: noArguments,
	}
	declareOne(cmd, parkedSettings...)
	cmd.Flags().StringVar(&topic, "topic", "", "only of this `topic`")
	cmd.Flags().Int64Var(&after, "after", 0, "only above this `position`")
	cmd.Flags().IntVar(&limit, "limit", parkedPerPage, fmt.Sprintf("`rows` at most, up to %d", mostParkedPage))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if limit < 1 || limit > mostParkedPage {
			return usagef("--limit %d: want 1 to %d", limit, mostParkedPage)
		}
		return p.with(cmd, func(ctx context.Context, on desk) error {
			page, err := readParked(ctx, on.conn, on.of, pageOf{topic, after, limit})
			if err != nil {
				return err
			}
			if on.form == "json" {
				return printJSON(p.Stdout, page)
			}
			return page.print(p.Stdout)
		})
	}
	return cmd
}

func (page parkedPage) print(to io.Writer) error {
	if len(page.Rows) == 0 {
		_, err := fmt.Fprintln(to, "no row is parked")
		return err
	}
	for _, r := range page.Rows {
		_, err := fmt.Fprintf(to, "%s  position %d  %s  key %q\n    %d attempts since %s: %s\n", r.ID, r.Position, r.Topic, r.Key,
			r.Attempts, r.FirstFailed.UTC().Format(time.RFC3339), r.LastError)
		if err != nil {
			return err
		}
	}
	if page.Next == 0 {
		return nil
	}
	_, err := fmt.Fprintf(to, "there are more: --after %d\n", page.Next)
	return err
}

func (p Program) parkedShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show a parked row with its payload",
		Example: `  outbox-relay parked show 019aa6f0-7c1d-7d3a-9d0b-6f3b1c2d4e5f`,
	}
	declareOne(cmd, parkedSettings...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids, err := parseIDs(args)
		if err != nil {
			return err
		}
		if len(ids) > 1 {
			return usagef("show takes one id")
		}
		return p.with(cmd, func(ctx context.Context, on desk) error {
			r, err := readParkedRow(ctx, on.conn, on.of, ids[0])
			if err != nil {
				return err
			}
			if on.form == "json" {
				return printJSON(p.Stdout, r)
			}
			return r.print(p.Stdout)
		})
	}
	return cmd
}

func (r parkedRow) print(to io.Writer) error {
	created, payload := "the row is gone from the outbox", "null"
	if r.mapped {
		created = "not told by its table"
	}
	if r.Created != nil {
		created = r.Created.UTC().Format(time.RFC3339)
	}
	if r.Payload != nil {
		payload = *r.Payload
	}
	for _, l := range [][2]string{
		{"id", r.ID.String()}, {"position", fmt.Sprint(r.Position)}, {"topic", r.Topic}, {"key", r.Key}, {"type", r.Type},
		{"created", created}, {"attempts", fmt.Sprint(r.Attempts)}, {"failed since", r.FirstFailed.UTC().Format(time.RFC3339)},
		{"error", r.LastError}, {"headers", r.Headers}, {"payload", payload},
	} {
		if _, err := fmt.Fprintf(to, "%-14s%s\n", l[0], l[1]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Columns)) {
		value := "null"
		if v := r.Columns[name]; v != nil {
			value = *v
		}
		if _, err := fmt.Fprintf(to, "column        %s = %s\n", name, value); err != nil {
			return err
		}
	}
	return nil
}

func (p Program) repairCommand(name, action, long string) *cobra.Command {
	var who by
	cmd := &cobra.Command{
		Use:     name + " ID…",
		Short:   map[string]string{"retry": "Try parked rows again", "discard": "Give parked rows up for good"}[name],
		Long:    long,
		Example: `  outbox-relay parked ` + name + ` 019aa6f0-7c1d-7d3a-9d0b-6f3b1c2d4e5f --reason 'ticket 4711'`,
	}
	declareOne(cmd, parkedSettings...)
	cmd.Flags().StringVar(&who.Actor, "actor", "", "`name` of who does it, for the record (default: the operating system's user)")
	cmd.Flags().StringVar(&who.Reason, "reason", "", "`text`: why, for the record")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids, err := parseIDs(args)
		if err != nil {
			return err
		}
		if who.Actor == "" {
			if u, err := user.Current(); err == nil {
				who.Actor = u.Username
			}
		}
		if err := who.check(action); err != nil {
			return usagef("%w: set --actor, --reason", err)
		}
		return p.with(cmd, func(ctx context.Context, on desk) error {
			return p.repair(ctx, on, action, ids, who)
		})
	}
	return cmd
}

// repair goes on behind a row that is not parked, and fails in the end.
func (p Program) repair(ctx context.Context, on desk, action string, ids []uuid.UUID, who by) error {
	type outcome struct {
		ID uuid.UUID `json:"id"`
		*repaired
		Error string `json:"error,omitempty"`
	}
	var all []outcome
	var failures []error
	for _, id := range ids {
		one := outcome{ID: id}
		done, err := repair(ctx, on.conn, on.of, action, id, who)
		if err != nil {
			one.Error = err.Error()
			failures = append(failures, err)
		} else {
			one.repaired = &done
		}
		all = append(all, one)
		if on.form != "json" && err == nil {
			what := map[string]string{retryParked: "will be tried again", discardParked: "discarded"}[action]
			if _, err := fmt.Fprintf(p.Stdout, "%s  position %d  %s: %s\n", id, done.Position, done.Topic, what); err != nil {
				return err
			}
		}
	}
	if on.form == "json" {
		if err := printJSON(p.Stdout, map[string]any{"rows": all}); err != nil {
			return err
		}
	}
	return errors.Join(failures...)
}

func parseIDs(args []string) ([]uuid.UUID, error) {
	if len(args) == 0 {
		return nil, usagef("no id: want one or more, as outbox-relay parked list prints them")
	}
	ids := make([]uuid.UUID, len(args))
	for n, arg := range args {
		id, err := uuid.Parse(arg)
		if err != nil {
			return nil, usagef("id %q: want a UUID, as outbox-relay parked list prints it", arg)
		}
		ids[n] = id
	}
	return ids, nil
}
