package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/timeline"
	"github.com/troupe-go/troupe/internal/flow/watch"
	"github.com/troupe-go/troupe/topics"
)

func newWatchShow() *cobra.Command {
	var f watchFlags
	cmd := &cobra.Command{
		Use:   "show <correlation id or key>",
		Short: "Show one flow: its messages, their causes, and the missing ones",
		Long: `show draws a flow's messages as a tree, each below the one that caused it:

  ✓ success   ✗ failure   ! exhausted, or a dead letter   ▸ not there yet   ? missing, or a stuck join   · a command, or no outcome

The times on the right are since the flow's first message, and since the cause.`,
		Example: `  troupe watch show o-1001
  troupe watch show 0199a5e0-7c1d-7d3a-9d0b-6f3b1c2d4e5f --output json | jq .status`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDesk(cmd, f.openDesk, func(desk *watch.Desk) error {
				flow, err := desk.Show(cmd.Context(), args[0])
				if err != nil {
					return failed(err)
				}
				var b bytes.Buffer
				if f.output.forPrograms() {
					err = f.output.encode(&b, map[string]any{"flow": desk.Name(), "seen_at": desk.SeenAt(), "shown": flow})
				} else {
					printFlow(&b, flow)
					err = printSeen(&b, desk)
				}
				if err == nil {
					_, err = b.WriteTo(cmd.OutOrStdout())
				}
				return failed(err)
			})
		},
	}
	f.declareFlow(cmd)
	f.output.declare(cmd)
	return cmd
}

func printFlow(w io.Writer, f *watch.Flow) {
	_, _ = fmt.Fprintf(w, "%-9s%s, %s\n", "flow", oneLine(f.ID, 200), f.Status)
	_, _ = fmt.Fprintf(w, "%-9s%s\n", "key", cmp.Or(oneLine(f.Key, 200), "-"))
	_, _ = fmt.Fprintf(w, "%-9s%s, %s in %s\n\n", "began", stamp(f.BeganAt), counted(f.Count, "message", "messages"), f.LastAt.Sub(f.BeganAt).Round(time.Millisecond))
	drawFlow(w, f)
	if f.Cut {
		_, _ = fmt.Fprintf(w, "  and more than the %d messages that are read of a flow\n", watch.MaxMessages)
	}
	for i, one := range f.Findings {
		if i == 0 {
			_, _ = fmt.Fprintln(w, "\nfound")
		}
		_, _ = fmt.Fprintf(w, "  %s  %s: %s\n", stamp(one.At), one.Kind, oneLine(one.Text, 500))
	}
	for i, one := range f.Waiting {
		if i == 0 {
			_, _ = fmt.Fprintln(w, "\nwaits for")
		}
		_, _ = fmt.Fprintf(w, "  until %s  %s\n", stamp(one.Until), oneLine(one.Text, 500))
	}
}

// drawFlow draws the tree.
func drawFlow(w io.Writer, f *watch.Flow) {
	below := make(map[int][]int) // the messages that a message caused; -1: messages without a known cause
	for i, m := range f.Messages {
		below[m.Cause] = append(below[m.Cause], i)
	}
	var lines [][2]string
	eachBranch(below, func(i int, first, _ string) {
		m := f.Messages[i]
		lines = append(lines, [2]string{tail(first, 36) + markOf(m) + " " + oneLine(nameOf(m), 60), sinceOf(f, m)})
	})
	left := 0
	for _, l := range lines {
		left = max(left, utf8.RuneCountInString(l[0]))
	}
	for _, l := range lines {
		_, _ = fmt.Fprintln(w, strings.TrimRight("  "+padded(l[0], left)+"  "+l[1], " "))
	}
	for _, one := range f.Findings {
		if one.Kind != watch.Late {
			_, _ = fmt.Fprintf(w, "  ? %s\n", oneLine(one.Hop+" "+strings.Join(one.Expected, " or "), 76))
		}
	}
	for _, one := range f.Waiting {
		_, _ = fmt.Fprintf(w, "  ▸ %s\n", oneLine(one.Text, 76))
	}
}

func markOf(m watch.Message) string {
	switch {
	case m.Kind == topics.DeadLetters, m.Outcome == envelope.Exhausted:
		return "!"
	case m.Outcome == envelope.Failure:
		return "✗"
	case m.Outcome == envelope.Success:
		return "✓"
	}
	return "·"
}

// nameOf returns the hop, without the flow, and the type of its message.
func nameOf(m watch.Message) string {
	_, hop, _ := strings.Cut(m.Hop, ".")
	name := hop + " " + m.Type[strings.LastIndexByte(m.Type, '.')+1:]
	if m.Kind != topics.Events {
		name = string(m.Kind) + " " + name
	}
	if m.Repeats > 0 {
		name += fmt.Sprintf(" (%d times)", m.Repeats+1)
	}
	return name
}

func sinceOf(f *watch.Flow, m watch.Message) string {
	text := "+" + timeline.Short(m.WrittenAt.Sub(f.Messages[0].WrittenAt))
	if m.Cause > 0 {
		text += ", " + timeline.Short(m.WrittenAt.Sub(f.Messages[m.Cause].WrittenAt)) + " after its cause"
	}
	return text
}
