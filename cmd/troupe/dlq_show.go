package main

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/jsontext"
)

func newDLQShow() *cobra.Command {
	var f deskFlags
	cmd := &cobra.Command{
		Use:   "show <id>",
		Short: "Show one dead letter: why, its payload as JSON, its headers, and its repairs",
		Example: `  troupe dlq show 019aa6f0-7c1d-7d3a-9d0b-6f3b1c2d4e5f
  troupe dlq show 019aa6f0-7c1d-7d3a-9d0b-6f3b1c2d4e5f --registry http://localhost:8081 --output json | jq .payload.json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := letterID(args[0])
			if err != nil {
				return err
			}
			return withDesk(cmd, f.open, func(desk *repair.Desk) error {
				l, err := desk.Show(cmd.Context(), id)
				if err != nil {
					return failed(err)
				}
				if f.output.forPrograms() {
					return f.output.encode(cmd.OutOrStdout(), l)
				}
				var b bytes.Buffer
				printLetter(&b, l)
				_, err = b.WriteTo(cmd.OutOrStdout())
				return err
			})
		},
	}
	f.declare(cmd)
	f.declareRegistry(cmd.Flags())
	return cmd
}

func printLetter(w io.Writer, l *repair.Letter) {
	line := linesTo(w, 14)
	line("dead letter", "%s, %s", l.ID, l.Status)
	line("error", "%s", oneLine(l.Error, 2000))
	line("class", "%s, after %s", l.Class, counted(l.Attempts, "attempt", "attempts"))
	line("cause", "%s", l.Cause)
	line("handler", "%s", oneLine(l.Handler, 200))
	line("failed", "first %s, last %s", stamp(l.FirstFailed), stamp(l.LastFailed))
	line("message", "%s, redriven %s before", oneLine(l.MessageID, 200), counted(l.Redrives, "time", "times"))
	line("type", "%s", oneLine(l.Type, 200))
	line("key", "%s", keyText(l.Key))
	line("correlation", "%s", oneLine(l.CorrelationID, 200))
	line("came from", "%s/%d/%d", oneLine(l.Topic, 249), l.Partition, l.Offset)
	if l.BadHeaders != "" {
		line("headers", "cannot be read: %s", oneLine(l.BadHeaders, 200))
	}
	_, _ = fmt.Fprintln(w, "\nheaders")
	for _, h := range l.Headers {
		value := "null"
		if h.Value != nil {
			value = oneLine(h.Value.String(), 500)
		}
		_, _ = fmt.Fprintf(w, "  %s: %s\n", oneLine(h.Key, 100), value)
	}
	printPayload(w, "payload", l.Payload)
	if l.Edit != nil {
		printPayload(w, "edited payload, which a redrive sends", *l.Edit)
	}
	if len(l.History) > 0 {
		_, _ = fmt.Fprintln(w, "\nhistory")
	}
	if l.Earlier {
		_, _ = fmt.Fprintln(w, "  earlier actions are not shown")
	}
	for _, a := range l.History {
		_, _ = fmt.Fprintf(w, "  %s  %s by %s (role %s)", stamp(a.At), a.Action, oneLine(a.Actor, 200), oneLine(a.Role, 63))
		if a.Reason != "" {
			_, _ = fmt.Fprintf(w, ": %s", oneLine(a.Reason, 2000))
		}
		_, _ = fmt.Fprintln(w)
	}
}

func printPayload(w io.Writer, title string, p repair.Payload) {
	_, _ = fmt.Fprintf(w, "\n%s (%s", title, p.Format)
	if p.SchemaID != 0 {
		_, _ = fmt.Fprintf(w, ", schema %d", p.SchemaID)
	}
	if p.Schema != "" {
		_, _ = fmt.Fprintf(w, " %s", oneLine(p.Schema, 200))
	}
	_, _ = fmt.Fprintf(w, ", %s)\n", counted(p.Bytes, "byte", "bytes"))
	if p.Note != "" {
		_, _ = fmt.Fprintf(w, "  %s\n", oneLine(p.Note, 500))
	}
	if p.JSON != nil {
		var escaped bytes.Buffer
		for line := range bytes.Lines(jsontext.Indent(p.JSON, "  ")) {
			escaped.WriteString(oneLine(string(bytes.TrimSuffix(line, []byte("\n"))), len(line)) + "\n")
		}
		_, _ = fmt.Fprintf(w, "  %s", escaped.String())
		return
	}
	for hex := p.Hex; hex != ""; {
		n := min(len(hex), 64)
		_, _ = fmt.Fprintf(w, "  %s\n", hex[:n])
		hex = hex[n:]
	}
}
