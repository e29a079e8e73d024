package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/address"
	"github.com/troupe-go/troupe/internal/flow/watch"
	"github.com/troupe-go/troupe/internal/plain"
	"github.com/troupe-go/troupe/topics"
)

// watchFlags holds the flags for the database in which a watcher stores its data.
type watchFlags struct {
	deskFlags
	flow  string
	admin string
}

func (f *watchFlags) declareFlow(cmd *cobra.Command) {
	f.declareDatabase(cmd.Flags())
	cmd.Flags().StringVar(&f.flow, "flow", "", "`name` of the flow; may be omitted if there is only one [TROUPE_FLOW]")
}

func newWatch() *cobra.Command {
	var f watchFlags
	var kafka string
	var files []string
	var cfg watch.Config
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Watch a flow without an orchestrator, and report deviations from its declarations",
		Long: `watch reads the topics of a flow, stores every message with its cause in a database of its own, and prints messages that are
missing, late or unexpected by the services' reactions.json, and stuck joins. It does not affect the flow: it joins no group and
commits no offset. You may stop it at any time; it continues from its stored offsets.

list, show and findings read the database; they need no broker.

Exit status: 0 it was stopped, 1 it cannot continue, 2 wrong usage.`,
		Example: `  troupe watch --brokers localhost:9092 --database-url postgres://localhost/watch --reactions services
  troupe watch --brokers localhost:9092 --reactions services --answer 30s --output json | jq -r .text
  troupe watch show o-1001`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if cfg.Brokers, err = f.brokers(kafka); err != nil {
				return err
			}
			if len(files) == 0 {
				return errors.New("--reactions is not set: want the reactions.json files of the flow's services, or folders with them")
			}
			if cfg.Declared, err = loadReactions(files); err != nil {
				return err
			}
			if cfg.Flow, err = f.flowOf(cfg.Declared); err != nil {
				return err
			}
			return f.watch(cmd, cfg)
		},
	}
	f.declareFlow(cmd)
	flags := cmd.Flags()
	flags.StringVar(&kafka, "brokers", "", "`host:port,...` of brokers [KAFKA_BROKERS]")
	flags.StringSliceVar(&files, "reactions", nil, "`file` or folder with reactions.json of the flow's services, repeatable")
	flags.DurationVar(&cfg.Answer, "answer", time.Minute, "`time` that a reaction may take")
	flags.DurationVar(&cfg.Since, "since", 0, "`time` to look back in topics that were not read before (default: the retention)")
	flags.StringVar(&f.admin, "admin", "", "`host:port` of /livez, /readyz and /metrics, such as 127.0.0.1:8087 (default: none)")
	flags.DurationVar(&cfg.Retention, "retention", 7*24*time.Hour, "`time` for which messages and findings are kept, at most 336h")
	f.output.declare(cmd)
	cmd.AddCommand(newWatchList(), newWatchShow(), newWatchFindings())
	return cmd
}

func (f *watchFlags) brokers(text string) (all []string, err error) {
	if all, err = address.ParseBrokers(cmp.Or(text, os.Getenv("KAFKA_BROKERS"))); err != nil {
		return nil, fmt.Errorf("--brokers or KAFKA_BROKERS: %w", err)
	}
	if len(all) == 0 {
		return nil, errors.New("--brokers is not set: want host:port of a broker; set it, or KAFKA_BROKERS")
	}
	return all, nil
}

// flowOf returns the flow to watch: the named one, else the only one of the services.
func (f *watchFlags) flowOf(services []flow.Declaration) (string, error) {
	if name := cmp.Or(f.flow, os.Getenv("TROUPE_FLOW")); name != "" {
		return name, nil
	}
	var flows []string
	for _, s := range services {
		hop, err := topics.ParseHop(s.Hop)
		if err == nil && !slices.Contains(flows, hop.Flow()) {
			flows = append(flows, hop.Flow())
		}
	}
	if len(flows) != 1 {
		return "", fmt.Errorf("--flow is not set, and services of %s are declared: set it to the watched flow", strings.Join(flows, ", "))
	}
	return flows[0], nil
}

func (f *watchFlags) watch(cmd *cobra.Command, cfg watch.Config) error {
	pool, _, err := f.connect(cmd.Context())
	if err != nil {
		return err
	}
	defer pool.Close()
	var broken error
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	if cfg.Kafka, err = kafkaIdentity(); err != nil {
		return err
	}
	cfg.Pool, cfg.Log = pool, zerolog.New(plain.Log(cmd.ErrOrStderr())).With().Timestamp().Logger()
	w := cmd.OutOrStdout()
	cfg.Found = func(_ context.Context, one watch.Finding) {
		if f.output.forPrograms() {
			broken = f.output.next(w, one)
		} else {
			_, broken = fmt.Fprintf(w, "%s  %-10s  %s  %s  %s\n", stamp(one.At), one.Kind, oneLine(one.Correlation, 60), oneLine(one.Key, 60), oneLine(one.Text, 500))
		}
		if broken != nil {
			stop() // the reader of the output is gone
		}
	}
	watcher, err := f.watcher(cfg)
	if err != nil {
		return err
	}
	if err = watcher.Run(ctx); err == nil {
		err = broken
	}
	return failed(err)
}

// openDesk opens the desk for list, show and findings.
func (f *watchFlags) openDesk(ctx context.Context) (*watch.Desk, func(), error) {
	f.flow = cmp.Or(f.flow, os.Getenv("TROUPE_FLOW"))
	pool, _, err := f.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	desk, err := watch.OpenDesk(ctx, pool, f.flow)
	if err != nil {
		pool.Close()
		return nil, nil, failed(err)
	}
	return desk, pool.Close, nil
}

func newWatchList() *cobra.Command {
	var f watchFlags
	var filter watch.Filter
	var statuses []string
	var since, before time.Time
	var limit int
	var after string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the observed flows, newest first",
		Long: `list prints flows with their status. With --found, or --status deviant alone, flows with the latest findings come first. The
status is computed from all messages of a flow, so with a filter list examines 150 flows, or --limit if that is more. It may then
print fewer flows than match, or none, with the mark for the next page.`,
		Example: `  troupe watch list
  troupe watch list --status deviant,parked --since 2h
  troupe watch list --found missing --limit 500 --output json | jq -r '.flows[].correlation_id'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > 1000 {
				return fmt.Errorf("--limit %d: want 1 to 1000", limit)
			}
			for _, s := range statuses {
				filter.Statuses = append(filter.Statuses, watch.Status(s))
			}
			filter.BeganAfter, filter.BeganBefore = since, before
			if err := filter.Validate(); err != nil {
				return err
			}
			return withDesk(cmd, f.openDesk, func(desk *watch.Desk) error {
				flows, next, err := desk.Find(cmd.Context(), filter, limit, after)
				if err == nil {
					err = printFlows(cmd.OutOrStdout(), desk, flows, next, f.output)
				}
				return failed(err)
			})
		},
	}
	f.declareFlow(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&statuses, "status", nil, "only of this status, repeatable: `under way|deviant|parked|compensated|completed`")
	flags.StringVar((*string)(&filter.Found), "found", "", "only flows with a finding of this kind: `missing|late|stuck join|unexpected`")
	flags.StringVar(&filter.Key, "key", "", "only with a message of this business `key`")
	momentVar(flags, &since, "since", "only flows that began at this `time` or later: 2026-01-31T12:00:00Z, or 2h for two hours ago")
	momentVar(flags, &before, "before", "only flows that began before this `time`")
	flags.IntVar(&limit, "limit", 50, "at most `n` flows, up to 1000")
	flags.StringVar(&after, "after", "", "go on behind this `mark`, which the page before has printed")
	f.output.declare(cmd)
	return cmd
}

func printFlows(w io.Writer, desk *watch.Desk, flows []watch.Flow, next string, output format) error {
	if output.forPrograms() {
		return output.encode(w, map[string]any{"flow": desk.Name(), "seen_at": desk.SeenAt(), "flows": orEmpty(flows), "next": next})
	}
	if len(flows) == 0 {
		if next == "" {
			_, _ = fmt.Fprintln(w, "No flows.")
		} else {
			_, _ = fmt.Fprintln(w, "None of the examined flows matches.")
		}
	} else {
		t := newTable(w, "FLOW", "KEY", "STATUS", "MESSAGES", "BEGAN", "TOOK")
		for _, one := range flows {
			t.row(oneLine(one.ID, 60), cmp.Or(oneLine(one.Key, 60), "-"), string(one.Status), fmt.Sprint(one.Count), stamp(one.BeganAt),
				one.LastAt.Sub(one.BeganAt).Round(time.Millisecond).String())
		}
		if err := t.print(w); err != nil {
			return err
		}
	}
	more(w, next)
	return printSeen(w, desk)
}

// printSeen prints up to which time the watcher has read.
func printSeen(w io.Writer, desk *watch.Desk) error {
	seen := "the watcher has not caught up yet"
	if at := desk.SeenAt(); !at.IsZero() {
		seen = "seen up to " + stamp(at)
	}
	_, err := fmt.Fprintf(w, "\nflow %s, %s\n", oneLine(desk.Name(), 63), seen)
	return err
}

func newWatchFindings() *cobra.Command {
	var f watchFlags
	var limit int
	var all bool
	cmd := &cobra.Command{
		Use:   "findings",
		Short: "List missing, late, stuck and unexpected messages",
		Example: `  troupe watch findings
  troupe watch findings --all --output json | jq -r '.findings[].text'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > 10_000 {
				return fmt.Errorf("--limit %d: want 1 to 10000", limit)
			}
			return withDesk(cmd, f.openDesk, func(desk *watch.Desk) error {
				found, err := desk.Findings(cmd.Context(), !all, limit)
				if err != nil {
					return failed(err)
				}
				w := cmd.OutOrStdout()
				if f.output.forPrograms() {
					err = f.output.encode(w, map[string]any{"flow": desk.Name(), "seen_at": desk.SeenAt(), "findings": orEmpty(found)})
				} else {
					printFound(w, found)
					err = printSeen(w, desk)
				}
				return failed(err)
			})
		},
	}
	f.declareFlow(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "also late messages")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most `n` lines, up to 10000")
	f.output.declare(cmd)
	return cmd
}

func printFound(w io.Writer, found []watch.Finding) {
	if len(found) == 0 {
		_, _ = fmt.Fprintln(w, "Nothing is missing, stuck or unexpected.")
		return
	}
	t := newTable(w, "AT", "KIND", "FLOW", "KEY", "WHAT")
	for _, one := range found {
		text := one.Text
		if one.Messages > 1 {
			text += fmt.Sprintf(" (%d of them, the last at %s)", one.Messages, stamp(*one.LastAt))
		}
		t.row(stamp(one.At), string(one.Kind), oneLine(one.Correlation, 60), cmp.Or(oneLine(one.Key, 60), "-"), oneLine(text, 500))
	}
	_ = t.print(w)
}
