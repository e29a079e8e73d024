package orders

import (
	"encoding/csv"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/troupe-go/troupe/internal/demo"
)

// maxProblems bounds the problems that are reported at once.
const maxProblems = 10

// A Problem is one error in a file.
type Problem struct {
	File   string
	Line   int
	Column string // "" if the whole line is wrong
	Reason string
}

// Error returns file:line: column: reason.
func (p Problem) Error() string {
	if p.Column == "" {
		return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Reason)
	}
	return fmt.Sprintf("%s:%d: %s: %s", p.File, p.Line, p.Column, p.Reason)
}

// checker parses lines into orders, and collects the problems.
type checker struct {
	file     string
	fields   int            // in the header
	at       []int          // index in the line, for each of columns
	seen     map[string]int // order id: line
	problems []error
}

func (c *checker) fail(line int, column, reason string) {
	c.problems = append(c.problems, Problem{c.file, line, column, reason})
}

// err returns all problems, one a line.
func (c *checker) err() error {
	if len(c.problems) >= maxProblems {
		return errors.Join(append(c.problems[:maxProblems:maxProblems], fmt.Errorf("%s: no more is said after %d problems", c.file, maxProblems))...)
	}
	return errors.Join(c.problems...)
}

// broken records a line that is no CSV, or an error of reading.
func (c *checker) broken(err error) {
	var long tooLong
	var syntax *csv.ParseError
	switch {
	case errors.As(err, &long):
		c.fail(long.line, "", long.reason)
	case errors.As(err, &syntax):
		c.fail(syntax.Line, "", fmt.Sprintf("byte %d: %v", syntax.Column, syntax.Err))
	default:
		c.problems = append(c.problems, fmt.Errorf("%s: %w", c.file, err))
	}
}

// order checks every field of a line. ok is true if all are valid.
func (c *checker) order(line int, fields []string) (o Order, ok bool) {
	if len(fields) != c.fields {
		c.fail(line, "", fmt.Sprintf("%d fields: the header has %d", len(fields), c.fields))
		return o, false
	}
	before := len(c.problems)
	field := func(column int) string { return strings.Clone(fields[c.at[column]]) }
	o = Order{ID: field(0), CustomerID: field(1), PlacedAt: field(2)}
	for column := range columns {
		if !utf8.ValidString(fields[c.at[column]]) {
			c.fail(line, columns[column], "not UTF-8")
			return o, false
		}
	}
	if reason := name(o.ID); reason != "" {
		c.fail(line, "order_id", reason)
	} else if first, twice := c.seen[o.ID]; twice {
		c.fail(line, "order_id", fmt.Sprintf("%q is in line %d too", o.ID, first))
	} else {
		c.seen[o.ID] = line
	}
	if reason := name(o.CustomerID); reason != "" {
		c.fail(line, "customer_id", reason)
	}
	if _, err := time.Parse(time.DateOnly, o.PlacedAt); err != nil {
		c.fail(line, "placed_at", fmt.Sprintf("%.40q is no date such as 1997-01-31", o.PlacedAt))
	}
	if n, err := strconv.ParseInt(field(3), 10, 32); err != nil || n < 1 || field(3)[0] == '+' {
		c.fail(line, "quantity", fmt.Sprintf("%.40q is no whole number from 1 to 2147483647", field(3)))
	} else {
		o.Quantity = int32(n)
	}
	var err error
	if o.AmountCents, err = demo.Cents(field(4)); err != nil {
		c.fail(line, "amount", err.Error())
	}
	return o, len(c.problems) == before
}

// name returns why an id is invalid, or "": it becomes a key in Kafka, a word in logs and a part of a path.
func name(id string) (reason string) {
	switch {
	case id == "":
		return "empty"
	case len(id) > 200:
		return "longer than 200 bytes"
	case id == "." || id == "..":
		return fmt.Sprintf("%q cannot stand in a path", id)
	case strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Sprintf("%.40q holds a character that cannot be printed", id)
	}
	return ""
}
