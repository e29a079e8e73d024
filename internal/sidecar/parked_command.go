package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin"
	desk "github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/plain"
)

func (p Program) parkedCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "parked",
		Short: "List, retry or discard rows that wait for an operator",
		Long: `parked works on the database, whether a relay runs or not. A parked row could not be published, and later
rows of its key wait behind it. Correct the cause and retry it, or discard it: then it is never
published, and the table troupe.outbox_repairs keeps it with the operator's name and reason.`,
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
		p.repairCommand(repair{name: "retry", short: "Try parked rows again", did: "will be tried again", check: admin.Actor.Check,
			long: `retry lets parked rows be tried again at once, in their old place.`,
			one:  desk.Desk.Retry, topic: desk.Desk.RetryTopic,
		}),
		p.repairCommand(repair{name: "discard", short: "Give parked rows up for good", did: "discarded", check: admin.Actor.CheckReasoned,
			long: `discard removes parked rows from the outbox for good; later rows of their keys are published.
It needs a --reason. The table troupe.outbox_repairs keeps each with its payload.`,
			one: desk.Desk.Discard, precheck: desk.Desk.CheckOneTopic, topic: desk.Desk.DiscardTopic, forGood: true,
		}))
	return cmd
}

// parkedSettings are the settings of all commands of parked.
var parkedSettings = append(slices.Clone(databaseSettings), output)

// with calls do with a connection to the database of the selected outbox.
func (p Program) with(cmd *cobra.Command, do func(ctx context.Context, on asked) error) error {
	v, config, err := p.readDatabase(cmd, parkedSettings...)
	if err != nil {
		return err
	}
	of, err := v.table()
	if err != nil {
		return err
	}
	form, err := v.oneOf(output)
	if err != nil {
		return err
	}
	now, err := pg.ConnConfig(cmd.Context(), config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), askLimit)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, now)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return do(ctx, asked{desk.Desk{DB: conn, Table: of}, form})
}

// An asked is the table that a command works on, and the format of the command's output.
type asked struct {
	desk.Desk
	form string // format of the output
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
	cmd.Flags().IntVar(&limit, "limit", parkedPerPage, fmt.Sprintf("`rows` at most, up to %d", desk.MostRows))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if limit < 1 || limit > desk.MostRows {
			return usagef("--limit %d: want 1 to %d", limit, desk.MostRows)
		}
		return p.with(cmd, func(ctx context.Context, on asked) error {
			page, err := listParked(ctx, on.Desk, topic, desk.Page{After: after, Rows: limit})
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

const parkedPerPage = 50

// A parkedPage is a page of parked rows. Next is the value of after for the next page, or 0 on the last one.
type parkedPage struct {
	Rows []desk.Row `json:"rows"`
	Next int64      `json:"next,omitempty"`
}

func listParked(ctx context.Context, d desk.Desk, topic string, p desk.Page) (page parkedPage, err error) {
	page.Rows, page.Next, err = d.List(ctx, desk.Filter{Status: desk.Parked, Topic: topic}, p)
	if page.Rows == nil {
		page.Rows = []desk.Row{}
	}
	return page, err
}

func (page parkedPage) print(to io.Writer) error {
	if len(page.Rows) == 0 {
		_, err := fmt.Fprintln(to, "no row is parked")
		return err
	}
	for _, r := range page.Rows {
		_, err := fmt.Fprintf(to, "%s  position %d  %s  key %q\n    %d attempts since %s: %s\n", r.ID, r.Position, plain.Line(r.Topic, 249), r.Key,
			r.Attempts, r.FirstFailed.UTC().Format(time.RFC3339), plain.Line(r.LastError, len(r.LastError)))
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
	var topic string
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show a parked row with its payload",
		Example: `  outbox-relay parked show 019aa6f0-7c1d-7d3a-9d0b-6f3b1c2d4e5f`,
	}
	declareOne(cmd, parkedSettings...)
	cmd.Flags().StringVar(&topic, "topic", "", "the row of this `topic`, if rows of several topics have the id")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids, err := parseIDs(args)
		if err != nil {
			return err
		}
		if len(ids) > 1 {
			return usagef("show takes one id")
		}
		return p.with(cmd, func(ctx context.Context, on asked) error {
			r, err := on.Show(ctx, desk.RowID{ID: ids[0], Topic: topic})
			if err != nil {
				return err
			}
			if on.form == "json" {
				return printJSON(p.Stdout, r)
			}
			return printRow(p.Stdout, r, on.Table.Name != "")
		})
	}
	return cmd
}

func printRow(to io.Writer, r desk.Row, mapped bool) error {
	created, payload := "the row is gone from the outbox", "null"
	if mapped {
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
		{"status", string(r.Status)},
		{"created", created}, {"attempts", fmt.Sprint(r.Attempts)}, {"failed since", r.FirstFailed.UTC().Format(time.RFC3339)},
		{"error", r.LastError}, {"headers", r.Headers}, {"payload", payload},
	} {
		text := plain.Line(l[1], len(l[1]))
		if l[0] == "payload" { // it may have several lines, which must not be taken for other fields
			text = strings.ReplaceAll(plain.Lines(l[1]), "\n", "\n              ")
		}
		if _, err := fmt.Fprintf(to, "%-14s%s\n", l[0], text); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Columns)) {
		value := "null"
		if v := r.Columns[name]; v != nil {
			value = *v
		}
		if _, err := fmt.Fprintf(to, "column        %s = %s\n", plain.Line(name, 63), plain.Line(value, len(value))); err != nil {
			return err
		}
	}
	return nil
}

// A repair is one action on parked rows.
type repair struct {
	name, short, long, did string
	check                  func(admin.Actor) error
	one                    repairing
	precheck               func(desk.Desk, context.Context, desk.RowID) error // returns the error of one for a dry run; nil: one refuses no parked row
	topic                  func(desk.Desk, context.Context, string, admin.Actor) (int, error)
	forGood                bool // all rows of a topic only with --all: ids from an empty variable of a shell are no ids
}

// declareBy adds the flags for the actor and the reason to a command.
func declareBy(cmd *cobra.Command, by *admin.Actor) {
	cmd.Flags().StringVar(&by.Name, "actor", "", "`name` of who does it, for the record (default: the operating system's user)")
	cmd.Flags().StringVar(&by.Reason, "reason", "", "`text`: why, for the record")
}

// checkBy sets the default actor, and returns an error if the actor or a required reason is missing.
func checkBy(by *admin.Actor, check func(admin.Actor) error) error {
	if by.Name == "" {
		if u, err := user.Current(); err == nil {
			by.Name = u.Username
		}
	}
	if err := check(*by); err != nil {
		return usagef("--%w", err)
	}
	return nil
}

func (p Program) repairCommand(r repair) *cobra.Command {
	var by admin.Actor
	var topic string
	var dryRun, all bool
	topicAlone := "With a --topic and no id it takes all parked rows of that topic."
	example := "--topic order.payment.commands"
	if r.forGood {
		topicAlone = "With a --topic and --all it takes all parked rows of that topic."
		example += " --all"
	}
	cmd := &cobra.Command{
		Use:   r.name + " ID…",
		Short: r.short,
		Long: r.long + "\n" + topicAlone + " With --topic and ids it acts on the rows of that topic with these ids. " +
			"--dry-run lists the rows and changes nothing.",
		Example: `  outbox-relay parked ` + r.name + ` 019aa6f0-7c1d-7d3a-9d0b-6f3b1c2d4e5f --reason 'ticket 4711'
  outbox-relay parked ` + r.name + ` ` + example + ` --reason 'ticket 4711' --dry-run`,
	}
	declareOne(cmd, parkedSettings...)
	declareBy(cmd, &by)
	cmd.Flags().StringVar(&topic, "topic", "", "all parked rows of this `topic`, or its rows with the ids")
	if r.forGood {
		cmd.Flags().BoolVar(&all, "all", false, "all parked rows of the topic")
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be done, and do nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var ids []uuid.UUID
		var err error
		switch {
		case all && len(args) > 0:
			return usagef("--all with ids: use one or the other")
		case all && topic == "":
			return usagef("--all without --topic: want the topic whose parked rows are meant")
		case r.forGood && topic != "" && !all && len(args) == 0:
			return usagef("no id: want one or more, or --all for all parked rows of %s", topic)
		case topic == "" || len(args) > 0:
			if ids, err = parseIDs(args); err != nil {
				return err
			}
		}
		if !dryRun {
			if err := checkBy(&by, r.check); err != nil {
				return err
			}
		}
		return p.with(cmd, func(ctx context.Context, on asked) error {
			switch {
			case dryRun:
				return p.wouldRepair(ctx, on, r, topic, ids)
			case len(ids) == 0:
				return p.repairTopic(ctx, on, r, topic, by)
			}
			return p.repair(ctx, on, r, rowIDs(topic, ids), by)
		})
	}
	return cmd
}

// repair continues after a row that is not parked, and returns an error at the end.
func (p Program) repair(ctx context.Context, on asked, r repair, rows []desk.RowID, by admin.Actor) error {
	type outcome struct {
		ID uuid.UUID `json:"id"`
		*desk.Repaired
		Error string `json:"error,omitempty"`
	}
	var all []outcome
	var failures []error
	for _, row := range rows {
		one := outcome{ID: row.ID}
		done, err := r.one(on.Desk, ctx, row, by)
		if err != nil {
			one.Error = err.Error()
			failures = append(failures, err)
		} else {
			one.Repaired = &done
		}
		all = append(all, one)
		if on.form != "json" && err == nil {
			if _, err := fmt.Fprintf(p.Stdout, "%s  position %d  %s: %s\n", row.ID, done.Position, plain.Line(done.Topic, 249), r.did); err != nil {
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

func (p Program) repairTopic(ctx context.Context, on asked, r repair, topic string, by admin.Actor) error {
	n, err := r.topic(on.Desk, ctx, topic, by)
	if on.form == "json" {
		return errors.Join(err, printJSON(p.Stdout, map[string]any{"topic": topic, "done": n}))
	}
	_, told := fmt.Fprintf(p.Stdout, "%d rows of %s: %s\n", n, topic, r.did)
	return errors.Join(err, told)
}

// wouldRepair prints the rows that the action would change: of a topic, up to one page.
func (p Program) wouldRepair(ctx context.Context, on asked, r repair, topic string, ids []uuid.UUID) error {
	page := parkedPage{Rows: []desk.Row{}}
	var err error
	if len(ids) == 0 {
		page, err = listParked(ctx, on.Desk, topic, desk.Page{Rows: desk.MostRows})
	}
	for _, of := range rowIDs(topic, ids) {
		row, one := on.Show(ctx, of)
		if one == nil && row.Status != desk.Parked {
			one = fmt.Errorf("%s is %s, and %w", of.ID, row.Status, desk.ErrNotParked)
		}
		if one == nil && r.precheck != nil {
			one = r.precheck(on.Desk, ctx, of)
		}
		if one == nil {
			page.Rows = append(page.Rows, row)
		}
		err = errors.Join(err, one)
	}
	if on.form == "json" {
		return errors.Join(err, printJSON(p.Stdout, page))
	}
	more := ""
	if page.Next > 0 {
		more = " or more"
	}
	if _, told := fmt.Fprintf(p.Stdout, "%d rows%s: %s would be; nothing has been done\n", len(page.Rows), more, r.name); told != nil {
		return told
	}
	for _, row := range page.Rows {
		if _, told := fmt.Fprintf(p.Stdout, "%s  position %d  %s  key %q\n", row.ID, row.Position, plain.Line(row.Topic, 249), row.Key); told != nil {
			return told
		}
	}
	return err
}
