package main

import (
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

const (
	gap       = 2  // blanks between columns
	narrowest = 24 // minimum width of the last column, which has the most text
)

// A table prints rows for people. On a terminal that is too narrow its last column is cut, and if that is not enough each row
// becomes a block of lines, name and value: an id is never cut, since it is there to be copied. In a pipe nothing is cut.
type table struct {
	width int // of the terminal; 0: it is none
	head  []string
	rows  [][]string
	told  bool // its head is printed already
}

// newTable makes a table for w.
func newTable(w io.Writer, head ...string) *table { return &table{width: terminalWidth(w), head: head} }

// row adds a row. Cells may come from messages and from rows that others write: control characters are not printed.
func (t *table) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = oneLine(cell, len(cell))
	}
	t.rows = append(t.rows, cells)
}

// terminalWidth returns 0 if w is no terminal.
func terminalWidth(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil || width < 1 {
		return width80
	}
	return width
}

// print writes the table. It is empty afterwards, and may get more rows.
func (t *table) print(w io.Writer) error {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	all := gap * (len(widths) - 1)
	for _, n := range widths {
		all += n
	}
	last := len(widths) - 1
	var text string
	switch over := all - t.width; {
	case t.width == 0 || over <= 0:
		text = t.lines(widths)
	case widths[last]-over >= min(narrowest, widths[last]):
		widths[last] -= over
		text = t.lines(widths)
	default:
		text = t.blocks()
	}
	t.rows, t.told = nil, true
	_, err := io.WriteString(w, text)
	return err
}

func (t *table) lines(widths []int) string {
	var b strings.Builder
	rows := append([][]string{t.head}, t.rows...)
	if t.told {
		rows = t.rows
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(padded(cell, widths[i]) + strings.Repeat(" ", gap))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

func (t *table) blocks() string {
	var b strings.Builder
	names := make([]string, len(t.head))
	wide := 0
	for i, name := range t.head {
		names[i] = strings.ToLower(name)
		wide = max(wide, utf8.RuneCountInString(name))
	}
	for n, row := range t.rows {
		if n > 0 {
			b.WriteByte('\n')
		}
		for i, cell := range row {
			if cell != "" {
				b.WriteString(padded(names[i], wide) + strings.Repeat(" ", gap) + cell + "\n")
			}
		}
	}
	return b.String()
}

// colours reports whether w is a terminal that supports colours, and NO_COLOR is not set (no-color.org).
func colours(w io.Writer) bool {
	return terminalWidth(w) > 0 && os.Getenv("NO_COLOR") == "" && !slices.Contains([]string{"", "dumb"}, os.Getenv("TERM"))
}
