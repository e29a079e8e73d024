package orders

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/troupe-go/troupe/internal/demo"
)

// columns lists the columns that the header must name.
var columns = []string{"order_id", "customer_id", "placed_at", "quantity", "amount"}

// maxProblems bounds the problems that are reported at once.
const maxProblems = 10

// Read reads the orders in r. file is the name of r in errors.
func Read(file string, r io.Reader) ([]Order, error) {
	text := bufio.NewReader(io.LimitReader(r, maxBytes+1))
	if mark, _ := text.Peek(3); string(mark) == "\ufeff" {
		_, _ = text.Discard(3)
	}
	c := &checker{file: file, in: csv.NewReader(text), lines: make(map[string]int)}
	c.in.FieldsPerRecord = -1 // checked below, with an error text of our own
	c.in.ReuseRecord = true
	if err := c.header(); err != nil {
		return nil, err
	}
	var orders []Order
	for len(c.problems) < maxProblems {
		fields, err := c.in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			c.unreadable(err)
			break
		}
		line, _ := c.in.FieldPos(0)
		if len(orders) == maxOrders {
			c.fail(line, "", "more than %d orders", maxOrders)
			break
		}
		if c.in.InputOffset() > maxBytes {
			c.fail(line, "", "a file of more than %d bytes", maxBytes)
			break
		}
		if o, ok := c.order(line, fields); ok {
			orders = append(orders, o)
		}
	}
	if len(orders) == 0 && len(c.problems) == 0 {
		c.fail(1, "", "no orders after the header")
	}
	return orders, c.err()
}

// checker parses lines into orders, and collects the problems.
type checker struct {
	file     string
	in       *csv.Reader
	fields   int            // in the header
	index    []int          // in the line, for each of columns
	lines    map[string]int // of the order ids
	problems []error
}

// fail records a problem as file:line: column: reason. column is "" if the whole line is wrong.
func (c *checker) fail(line int, column, reason string, args ...any) {
	where := fmt.Sprintf("%s:%d: ", c.file, line)
	if column != "" {
		where += column + ": "
	}
	c.problems = append(c.problems, errors.New(where+fmt.Sprintf(reason, args...)))
}

// err returns all problems, one a line.
func (c *checker) err() error {
	if len(c.problems) >= maxProblems {
		return errors.Join(append(c.problems[:maxProblems:maxProblems], fmt.Errorf("%s: more than %d problems; the others are not listed", c.file, maxProblems))...)
	}
	return errors.Join(c.problems...)
}

// unreadable records a line that is no CSV, or an error of reading.
func (c *checker) unreadable(err error) {
	var syntax *csv.ParseError
	if errors.As(err, &syntax) {
		c.fail(syntax.Line, "", "byte %d: %v", syntax.Column, syntax.Err)
		return
	}
	c.problems = append(c.problems, fmt.Errorf("%s: %w", c.file, err))
}

// header finds the index of each column.
func (c *checker) header() error {
	names, err := c.in.Read()
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%s: empty: want a header with %s, and orders", c.file, strings.Join(columns, ", "))
	case err != nil:
		c.unreadable(err)
		return c.err()
	}
	c.fields = len(names)
	for _, column := range columns {
		i := slices.Index(names, column)
		switch {
		case i < 0:
			c.fail(1, column, "missing in the header, which has %s", quoted(names))
		case slices.Contains(names[i+1:], column):
			c.fail(1, column, "twice in the header")
		}
		c.index = append(c.index, i)
	}
	return c.err()
}

// order checks every field of a line. ok is true if all are valid.
func (c *checker) order(line int, fields []string) (o Order, ok bool) {
	if len(fields) != c.fields {
		c.fail(line, "", "%d fields: the header has %d", len(fields), c.fields)
		return o, false
	}
	before := len(c.problems)
	field := func(column int) string { return strings.Clone(fields[c.index[column]]) }
	o = Order{ID: field(0), CustomerID: field(1), PlacedAt: field(2)}
	for i, column := range columns {
		if !utf8.ValidString(field(i)) {
			c.fail(line, column, "not UTF-8")
			return o, false
		}
	}
	if reason := demo.CheckID(o.ID); reason != "" {
		c.fail(line, "order_id", "%s", reason)
	} else if first, twice := c.lines[o.ID]; twice {
		c.fail(line, "order_id", "%q is in line %d too", o.ID, first)
	} else {
		c.lines[o.ID] = line
	}
	if reason := demo.CheckID(o.CustomerID); reason != "" {
		c.fail(line, "customer_id", "%s", reason)
	}
	if _, err := time.Parse(time.DateOnly, o.PlacedAt); err != nil {
		c.fail(line, "placed_at", "%.40q is no date such as 1997-01-31", o.PlacedAt)
	}
	n, err := strconv.ParseInt(field(3), 10, 32)
	if err != nil || n < 1 || field(3)[0] == '+' {
		c.fail(line, "quantity", "%.40q is no whole number from 1 to 2147483647", field(3))
	}
	o.Quantity = int32(n)
	if o.AmountCents, err = demo.Cents(field(4)); err != nil {
		c.fail(line, "amount", "%s", err)
	}
	return o, len(c.problems) == before
}

// quoted returns the first names of a header, for an error.
func quoted(names []string) string {
	short := make([]string, min(len(names), 8))
	for i := range short {
		short[i] = fmt.Sprintf("%.40q", names[i])
	}
	if len(names) > len(short) {
		short = append(short, "…")
	}
	return strings.Join(short, ", ")
}
