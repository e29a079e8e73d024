package main

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"

	"github.com/troupe-go/troupe/internal/admin/timeline"
)

const timeLayout = "2006-01-02 15:04:05.000"

func (p tracePrinter) print(t *timeline.Timeline) error {
	var b bytes.Buffer
	what := printable(t.Subject)
	if t.Flow != "" {
		what += ", a message of the flow " + printable(t.Flow)
	}
	fmt.Fprintf(&b, "%s: %s; %s of %s read, from %s UTC on\n", what, counted(len(t.Entries), "entry", "entries"),
		counted(t.Records, "record", "records"), counted(t.Partitions, "partition", "partitions"), t.Since.Format(timeLayout[:19]))
	if len(t.Entries) > 0 {
		b.WriteByte('\n')
		p.entries(&b, t)
	}
	p.findings(&b, t)
	if len(t.Unseen) > 0 {
		b.WriteString("\nnot seen:\n")
		for _, u := range t.Unseen {
			fmt.Fprintf(&b, "  %s: %s\n", printable(u.What), printable(u.Why))
		}
	}
	_, err := p.w.Write(b.Bytes())
	return err
}

func (p tracePrinter) findings(b *bytes.Buffer, t *timeline.Timeline) {
	b.WriteByte('\n')
	switch seen := len(t.Unseen) == 0; {
	case len(t.Entries) == 0:
		b.WriteString("Nothing was found. A longer --since looks further back; --scan-all reads partitions that the key does not belong to now.\n")
	case len(t.Findings) > 0:
		b.WriteString("waits for:\n")
		for _, f := range t.Findings {
			fmt.Fprintf(b, "  #%d %s %s\n", f.Entry+1, shortType(t.Entries[f.Entry]), printable(f.Text))
		}
	case seen:
		b.WriteString("Nothing is missing: every command is answered, and every event was read.\n")
	default:
		b.WriteString("No message is missing.\n")
	}
}

// entries writes the table, and below an entry the facts that do not fit into its line.
func (p tracePrinter) entries(b *bytes.Buffer, t *timeline.Timeline) {
	rows := [][]string{{"#", "TIME (UTC)", "AFTER", "HOP", "KIND", "TYPE", "OUTCOME", "BY", "ID"}}
	for i, e := range t.Entries {
		after, by := "", ""
		if e.Cause >= 0 {
			after, by = timeline.Short(e.After), fmt.Sprintf("#%d", e.Cause+1)
		}
		rows = append(rows, []string{
			fmt.Sprint(i + 1), e.At.UTC().Format(timeLayout), after, printable(e.Hop), string(e.Kind), shortType(e),
			printable(string(e.Outcome)), by, printable(e.ID),
		})
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	for n, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-len([]rune(cell)))
			if i == 0 || i == 2 {
				line.WriteString(pad + cell + "  ")
			} else {
				line.WriteString(cell + pad + "  ")
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		if n > 0 {
			for _, note := range p.notes(t.Entries[n-1]) {
				fmt.Fprintf(b, "%s    %s\n", strings.Repeat(" ", widths[0]), printable(note))
			}
		}
	}
}

// notes returns the facts of an entry for which the table has no column.
func (p tracePrinter) notes(e timeline.Entry) (notes []string) {
	if e.Deadline != "" {
		note := "the deadline " + e.Deadline
		if len(e.Expects) > 0 {
			note += ": had not come in time: " + strings.Join(e.Expects, ", or ")
		}
		notes = append(notes, note)
	}
	if e.Redrive > 0 {
		notes = append(notes, fmt.Sprintf("redrive %d", e.Redrive))
	}
	if e.Record != nil && e.Record.Repeats > 0 {
		notes = append(notes, fmt.Sprintf("%d more records with the same id: duplicates", e.Record.Repeats))
	}
	if e.Outbox != nil {
		notes = append(notes, fmt.Sprintf("in the outbox of %s: %s", e.Outbox.Database, e.Outbox.Status))
	}
	if l := e.DeadLetter; l != nil && l.Status != "open" && l.Status != "" { // the flow waits for an open one
		notes = append(notes, fmt.Sprintf("%s: %s after attempt %d: %s", l.Status, l.Class, l.Attempts, l.Error))
	}
	if !p.payload {
		return notes
	}
	if e.PayloadNote != "" {
		return append(notes, "payload: "+e.PayloadNote)
	}
	return append(notes, string(e.Payload))
}

// shortType returns the type without the package.
func shortType(e timeline.Entry) string {
	return printable(e.Type[strings.LastIndexByte(e.Type, '.')+1:])
}

// printable replaces the control characters of s, on which a terminal would act: the text comes from outside.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}
