package orders

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// columns lists the columns that the header must name.
var columns = []string{"order_id", "customer_id", "placed_at", "quantity", "amount"}

// Read reads the orders in r. file is the name of r in errors.
func Read(file string, r io.Reader) ([]Order, error) {
	text := bufio.NewReader(&limited{r: io.LimitReader(r, maxBytes+1)})
	if mark, _ := text.Peek(3); string(mark) == "\ufeff" {
		_, _ = text.Discard(3)
	}
	in := csv.NewReader(text)
	in.FieldsPerRecord = -1 // checked below, with an error text of our own
	in.ReuseRecord = true
	c := &checker{file: file, seen: make(map[string]int)}
	if err := c.header(in); err != nil {
		return nil, err
	}
	var orders []Order
	for {
		fields, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			c.broken(err)
			break
		}
		line, _ := in.FieldPos(0)
		if len(orders) == maxOrders {
			c.fail(line, "", fmt.Sprintf("more than %d orders", maxOrders))
			break
		}
		if o, ok := c.order(line, fields); ok {
			orders = append(orders, o)
		}
		if len(c.problems) >= maxProblems {
			break
		}
	}
	if len(orders) == 0 && len(c.problems) == 0 {
		c.fail(1, "", "no orders after the header")
	}
	return orders, c.err()
}

// header finds the index of each column.
func (c *checker) header(in *csv.Reader) error {
	names, err := in.Read()
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%s: empty: want a header with %s, and orders", c.file, strings.Join(columns, ", "))
	case err != nil:
		c.broken(err)
		return c.err()
	}
	c.fields = len(names)
	for _, column := range columns {
		at := slices.Index(names, column)
		switch {
		case at < 0:
			c.fail(1, column, "missing in the header, which has "+quoted(names))
		case slices.Contains(names[at+1:], column):
			c.fail(1, column, "twice in the header")
		}
		c.at = append(c.at, at)
	}
	return c.err()
}

// limited is a reader that fails on a line or a file that is too long, before all of it is in memory.
type limited struct {
	r      io.Reader
	bytes  int
	length int // of the current line so far
	line   int // number of complete lines
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	for _, b := range p[:n] {
		l.length++
		if b == '\n' {
			l.length = 0
			l.line++
		}
		if l.length > maxLine {
			return 0, tooLong{line: l.line + 1, reason: fmt.Sprintf("a line of more than %d bytes", maxLine)}
		}
	}
	if l.bytes += n; l.bytes > maxBytes {
		return 0, tooLong{line: l.line + 1, reason: fmt.Sprintf("a file of more than %d bytes", maxBytes)}
	}
	return n, err
}

type tooLong struct {
	line   int
	reason string
}

func (t tooLong) Error() string { return t.reason }

func quoted(names []string) string {
	short := make([]string, 0, 8)
	for _, name := range names {
		if len(short) == cap(short) {
			short = append(short, "…")
			break
		}
		short = append(short, fmt.Sprintf("%.40q", name))
	}
	return strings.Join(short, ", ")
}
