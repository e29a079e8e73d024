package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/internal/plain"
	"github.com/troupe-go/troupe/saga"
)

// shownEntries bounds the entries of a log that are shown.
const shownEntries = 1000

func newSagaShow() *cobra.Command {
	var f sagaFlags
	cmd := &cobra.Command{
		Use:   "show <saga>",
		Short: "Show one saga: its status and reason, its steps, its history, and the possible actions",
		Long: `show draws the steps as a tree, each below the last step that it needs:

  ✓ done   ▸ waits for its answer   · not begun   - skipped   ✗ refused   ! exhausted   ? in doubt
  ◂ is being compensated   ↶ compensated   ‼ its compensation failed`,
		Example: `  troupe saga show order/o-1001
  troupe saga show order/o-1001 --output json | jq .saga.state.data`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDesk(cmd, f.openSagas, func(desk *sagadesk.Desk) error {
				g, err := desk.Get(cmd.Context(), args[0])
				if err != nil {
					return failed(err)
				}
				log, err := desk.LogEnd(cmd.Context(), g.ID, shownEntries)
				if err != nil {
					return failed(err)
				}
				questions, err := desk.QuestionsOf(cmd.Context(), g)
				if err != nil {
					return failed(err)
				}
				possible := sagadesk.Possible(g.Definition, g.State, g.Now)
				var b bytes.Buffer
				if f.output.forPrograms() {
					err = f.output.encode(&b, map[string]any{"saga": g, "log": orEmpty(log), "possible": orEmpty(possible), "questions": orEmpty(questions)})
				} else {
					printSaga(&b, g, log, possible, questions)
				}
				if err == nil {
					_, err = b.WriteTo(cmd.OutOrStdout())
				}
				return err
			})
		},
	}
	f.declare(cmd)
	return cmd
}

func printSaga(w io.Writer, g *sagadesk.Detail, log []decisions.Entry, possible []saga.Event, questions []sagadesk.Question) {
	line := linesTo(w, 11)
	status := string(g.Status)
	if g.State.Back && g.Status == saga.Parked {
		status += ", compensating"
	}
	line("saga", "%s, %s", oneLine(g.ID, 200), status)
	if g.Reason != "" {
		line("reason", "%s", oneLine(g.Reason, 2000))
	}
	if g.State.Cancel != "" {
		line("cancel", "%s", g.State.Cancel)
	}
	line("definition", "%s (%.12s)", g.Definition, g.Row.Definition)
	line("of", "%s", oneLine(g.Hop, 200))
	line("started", "%s", stamp(g.StartedAt))
	if g.EndedAt != nil {
		line("ended", "%s, after %s", stamp(*g.EndedAt), g.EndedAt.Sub(g.StartedAt).Round(time.Millisecond))
	}
	if !g.State.Erased.IsZero() {
		line("erased", "%s: its data was erased (troupe erase)", stamp(g.State.Erased))
	}
	_, _ = fmt.Fprintln(w, "\nsteps")
	drawSteps(w, g.Definition.Spec(), g.State)
	_, _ = fmt.Fprintln(w, "\ndata")
	for _, name := range slices.Sorted(maps.Keys(g.State.Data)) {
		value, _ := json.Marshal(g.State.Data[name])
		_, _ = fmt.Fprintf(w, "  %s: %s\n", oneLine(name, 200), oneLine(string(value), 200))
	}
	_, _ = fmt.Fprintln(w, "\nhistory")
	if len(log) > 0 && log[0].Version > 1 {
		_, _ = fmt.Fprintf(w, "  %d entries before\n", log[0].Version-1)
	}
	for _, e := range log {
		printEntry(w, g.Definition, e)
	}
	for i, a := range g.State.Deadlines {
		if i == 0 {
			_, _ = fmt.Fprintln(w, "\ndeadlines to come")
		}
		overdue := ""
		if a.Overdue {
			overdue = "  overdue: it waits until the saga is taken up"
		}
		_, _ = fmt.Fprintf(w, "  %s  %s%s\n", stamp(a.At), oneLine(a.Name, 200), overdue)
	}
	for i, e := range g.Kept {
		if i == 0 {
			_, _ = fmt.Fprintln(w, "\nevents kept for this saga")
		}
		by := cmp.Or(e.Variable, "the key")
		_, _ = fmt.Fprintf(w, "  %s of %s, by %s: message %s\n", oneLine(e.Type, 200), oneLine(e.Hop, 200), oneLine(by, 200), oneLine(e.Message, 200))
	}
	printQuestions(w, g.ID, questions)
	printPossible(w, g, possible)
}

func printEntry(w io.Writer, d *saga.Definition, e decisions.Entry) {
	at := stamp(e.At)
	if e.Event.Actor != "" {
		step := ""
		if e.Event.Step != "" {
			step = " " + oneLine(e.Event.Step, 60)
		}
		if e.Event.Kind == saga.ActSet {
			values, _ := json.Marshal(e.Event.Fields)
			step = " " + oneLine(string(values), 200)
		}
		if given := sagadesk.Given(d, e.Event); given != "" {
			step += " with " + given
		}
		role := ""
		if e.Role != "" {
			role = " (role " + oneLine(e.Role, 63) + ")"
		}
		_, _ = fmt.Fprintf(w, "  %s  %s%s by %s%s: %s\n", at, oneLine(string(e.Event.Kind), 60), step, oneLine(e.Event.Actor, 200), role, oneLine(e.Event.Reason, 2000))
	}
	for _, m := range e.Moments {
		about := oneLine(m.Step, 60)
		if about != "" && m.Why != "" {
			about += ": "
		}
		about += oneLine(m.Why, 300)
		_, _ = fmt.Fprintf(w, "  %s  %s\n", at, strings.TrimRight(fmt.Sprintf("%-21s  %s", oneLine(m.What, 60), about), " "))
	}
	if e.Misdated() {
		_, _ = fmt.Fprintf(w, "  %s  the server wrote this entry at %s, for role %s\n", at, stamp(e.RecordedAt), oneLine(e.Role, 63))
	}
}

// printPossible prints the commands that the saga's state allows, if the saga is parked. A saga that runs needs no command.
func printPossible(w io.Writer, g *sagadesk.Detail, possible []saga.Event) {
	if g.Status != saga.Parked {
		return
	}
	_, _ = fmt.Fprintln(w, "\nwhat can be done (each with --reason; --dry-run says what would follow)")
	for _, e := range possible {
		text := "troupe saga " + string(e.Kind) + " " + plain.Operand(g.ID)
		if e.Step != "" {
			text += " " + plain.Operand(e.Step)
		}
		switch {
		case e.Kind == saga.ActSet:
			text += " NAME=JSON"
		case e.Kind == saga.ActResolve && e.Happened:
			text += " --happened yes"
		case e.Kind == saga.ActResolve:
			text += " --happened no"
		}
		_, _ = fmt.Fprintln(w, "  "+text)
	}
}
