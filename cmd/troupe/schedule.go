package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/schedule"
)

func newSchedule() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "schedule",
		Short: "Start sagas and send messages at the times of a cron expression",
		Long: `schedule lists and changes the schedules in the database of one service (--database-url or DATABASE_URL). The coordinators of that
database run them (docs/schedules.md). Each change needs a reason, and is recorded.`,
		Example: `  troupe schedule list
  troupe schedule show nightly`,
	}, newScheduleList(), newScheduleShow(), newScheduleSet(),
		newScheduleAction(&cobra.Command{
			Use:   "pause <name>",
			Short: "Stop a schedule until it is resumed; its occurrences until then are skipped",
		}, "it is paused", func(ctx context.Context, d schedule.Desk, name string, by admin.Actor) (string, error) {
			return "The schedule is paused.", d.Pause(ctx, name, by)
		}),
		newScheduleAction(&cobra.Command{
			Use:   "resume <name>",
			Short: "Continue a paused schedule with its next occurrence after now",
		}, "it is resumed", func(ctx context.Context, d schedule.Desk, name string, by admin.Actor) (string, error) {
			next, err := d.Resume(ctx, name, by)
			return "The schedule is resumed. Next occurrence: " + stamp(next) + ".", err
		}),
		newScheduleAction(&cobra.Command{
			Use:   "run <name>",
			Short: "Run one more occurrence now, also of a paused schedule",
			Long: `run requests one more occurrence. A coordinator sees the request within 5 s, and runs the occurrence. Its time is the time of the
request. The other occurrences of the schedule do not change. If the occurrence cannot be run, show prints the error.`,
		}, "it is run", func(ctx context.Context, d schedule.Desk, name string, by admin.Actor) (string, error) {
			occurrence, err := d.Request(ctx, name, by)
			return "Requested: " + occurrence + ".", err
		}),
		newScheduleAction(&cobra.Command{
			Use:   "delete <name>",
			Short: "Delete a schedule; the record of its changes is kept",
		}, "it is deleted", func(ctx context.Context, d schedule.Desk, name string, by admin.Actor) (string, error) {
			return "The schedule is deleted.", d.Delete(ctx, name, by)
		}))
}

// openSchedules opens the desk for schedules.
func (f *deskFlags) openSchedules(ctx context.Context) (schedule.Desk, func(), error) {
	pool, _, err := f.connect(ctx)
	if err != nil {
		return schedule.Desk{}, nil, err
	}
	return schedule.Desk{Pool: pool}, pool.Close, nil
}

func newScheduleList() *cobra.Command {
	var f deskFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the schedules with their next and last occurrences",
		Long: "list lists the schedules by name, at most 1,000, which is the most that troupe schedule set makes in a database. With --output json, data of more " +
			"than 4 KiB is null: see troupe schedule show.",
		Example: `  troupe schedule list
  troupe schedule list --output json | jq '.schedules[] | select(.error != null)'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDesk(cmd, f.openSchedules, func(desk schedule.Desk) error {
				all, err := desk.List(cmd.Context())
				if err != nil {
					return failed(err)
				}
				return scheduleList.print(cmd, f.output, all)
			})
		},
	}
	f.declare(cmd)
	return cmd
}

var scheduleList = listing[schedule.Schedule]{
	name: "schedules", ifEmpty: "No schedules.",
	head: []string{"NAME", "CRON", "ZONE", "NEXT", "LAST", "TARGET", "ERROR"},
	row: func(s schedule.Schedule) []string {
		next := stamp(s.NextAt)
		if s.PausedAt != nil {
			next = "paused"
		}
		return []string{s.Name, oneLine(s.Cron, 40), oneLine(s.Zone, 40), next, stampOf(s.LastAt), oneLine(s.Target(), 80), oneLine(s.Error, 200)}
	},
}

func newScheduleShow() *cobra.Command {
	var f deskFlags
	cmd := &cobra.Command{
		Use:     "show <name>",
		Short:   "Show a schedule, its next occurrences and the record of its changes",
		Example: "  troupe schedule show nightly",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDesk(cmd, f.openSchedules, func(desk schedule.Desk) error {
				s, next, changes, err := desk.Show(cmd.Context(), args[0])
				if err != nil {
					return failed(err)
				}
				w := cmd.OutOrStdout()
				if f.output.forPrograms() {
					return f.output.encode(w, map[string]any{"schedule": s, "next": next, "changes": changes})
				}
				fmt.Fprintf(w, "%s  %s %s, %s, catches up %s\n", s.Name, oneLine(s.Cron, 200), oneLine(s.Zone, 80), oneLine(s.Target(), 300),
					counted(s.CatchUp, "occurrence", "occurrences"))
				fmt.Fprintf(w, "data      %s\n", oneLine(string(s.Data), 1000))
				fmt.Fprintf(w, "last      %s, run at %s\n", stampOf(s.LastAt), stampOf(s.RanAt))
				fmt.Fprintf(w, "next      %s\n", stamps(next))
				if s.PausedAt != nil {
					fmt.Fprintf(w, "paused    since %s\n", stamp(*s.PausedAt))
				}
				if s.RequestedAt != nil {
					fmt.Fprintf(w, "requested %s, not run yet\n", stamp(*s.RequestedAt))
				}
				if s.Error != "" {
					fmt.Fprintf(w, "error     %s (%s)\n", oneLine(s.Error, 1000), counted(s.Tries, "try", "tries"))
				}
				fmt.Fprintln(w)
				return printChanges(w, changes)
			})
		},
	}
	f.declare(cmd)
	return cmd
}

// stamps joins times for a line of output.
func stamps(all []time.Time) string {
	texts := make([]string, len(all))
	for i, at := range all {
		texts[i] = stamp(at)
	}
	return strings.Join(texts, ", ")
}

func newScheduleSet() *cobra.Command {
	var f deskFlags
	var spec schedule.Spec
	var data string
	cmd := &cobra.Command{
		Use:   "set <name>",
		Short: "Create a schedule, or change it",
		Long: `set replaces the whole schedule: a flag that you leave out gets its default, not its previous value. If neither --cron nor --zone
changes, the next occurrence does not change; else it is the first one after now.

The cron expression has five fields: minute, hour, day of the month, month and day of the week. Its times are local times of the zone. If the
clock is set forward and skips a time, the occurrence runs at that moment. If the clock is set back and shows a time twice, the
occurrence runs at the first of the two. If the expression matches each hour, no occurrence is left out or repeated.

The saga of an occurrence has the schedule's name with the time as its key, such as nightly@2026-03-29T01:00:00Z. A message has JSON as
its payload; its id and its idempotency key are derived from this text and the schedule.`,
		Example: `  troupe schedule set nightly --cron '30 2 * * *' --zone Europe/Berlin --saga billing --data '{"of": "sales"}' --reason 'ticket 4711' --dry-run
  troupe schedule set report --cron '0 8 * * 1-5' --topic order.report.commands --type MakeReport --reason 'ticket 4711'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec.Name, spec.Data = args[0], []byte(data)
			next, err := schedule.Plan(spec, time.Now(), 5)
			if err != nil {
				return err
			}
			by, err := f.by(true)
			if err != nil {
				return err
			}
			action := fmt.Sprintf("set schedule %s, which %s at %s, …", spec.Name, oneLine(spec.Target(), 300), stamps(next))
			if goOn, err := f.agree(cmd, action, by); !goOn || err != nil {
				return err
			}
			return withDesk(cmd, f.openSchedules, func(desk schedule.Desk) error {
				s, err := desk.Set(cmd.Context(), spec, by)
				if err != nil {
					return failed(err)
				}
				return f.output.result(cmd, s, "The schedule is set. Next occurrence: %s.\nA coordinator of this database runs it; troupe doctor warns if none does.\n", stamp(s.NextAt))
			})
		},
	}
	flags := cmd.Flags()
	f.declare(cmd)
	flags.StringVar(&spec.Cron, "cron", "", "`expression` of five fields, or a word such as @daily; required")
	flags.StringVar(&spec.Zone, "zone", "UTC", "time zone, by its `name`, such as Europe/Berlin")
	flags.IntVar(&spec.CatchUp, "catch-up", 1, "run the latest `n` missed occurrences late, up to 100; 0: skip an occurrence that is more than a minute late")
	flags.StringVar(&spec.Saga, "saga", "", "start a saga of this `type`")
	flags.StringVar(&spec.Topic, "topic", "", "instead of --saga: send a message to this `topic`")
	flags.StringVar(&spec.Type, "type", "", "with --topic: `type` of the message")
	flags.StringVar(&spec.Key, "key", "", "with --topic: `key` of the message (default: the schedule's name)")
	flags.StringVar(&data, "data", "{}", "`JSON` object: the variables of the saga, without its key, or the payload of the message")
	f.declareAction(flags, "it is set; required")
	f.declareYes(flags)
	return cmd
}

// newScheduleAction completes cmd, a command that changes a schedule that exists. reason describes --reason.
func newScheduleAction(cmd *cobra.Command, reason string, act func(context.Context, schedule.Desk, string, admin.Actor) (string, error)) *cobra.Command {
	var f deskFlags
	verb, _, _ := strings.Cut(cmd.Use, " ")
	cmd.Example = fmt.Sprintf("  troupe schedule %s nightly --reason 'ticket 4711' --dry-run\n  troupe schedule %s nightly --reason 'ticket 4711'", verb, verb)
	cmd.Args = cobra.ExactArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		by, err := f.by(true)
		if err != nil {
			return err
		}
		return withDesk(cmd, f.openSchedules, func(desk schedule.Desk) error {
			s, next, _, err := desk.Show(cmd.Context(), args[0])
			if err != nil {
				return failed(err)
			}
			action := fmt.Sprintf("%s schedule %s, which %s at %s, …", verb, s.Name, oneLine(s.Target(), 300), stamps(next))
			if goOn, err := f.agree(cmd, action, by); !goOn || err != nil {
				return err
			}
			done, err := act(cmd.Context(), desk, args[0], by)
			if err != nil {
				return failed(err)
			}
			return f.output.result(cmd, map[string]any{"done": true, "result": done}, "%s\n", done)
		})
	}
	flags := cmd.Flags()
	f.declare(cmd)
	f.declareAction(flags, reason+"; required")
	f.declareYes(flags)
	return cmd
}
