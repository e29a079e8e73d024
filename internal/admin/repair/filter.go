package repair

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/deadletter"
)

// Status is the status of a dead letter.
type Status string

// These are the statuses. A dead letter is open until an operator redrives or discards it. AnyStatus is for a Filter.
const (
	Open      Status = "open"
	Redriven  Status = "redriven"
	Discarded Status = "discarded"
	AnyStatus Status = "any"
)

// A Filter selects dead letters that match all fields that are set. The zero Filter selects all that are open.
type Filter struct {
	IDs     []uuid.UUID
	Cause   string   // Cause.ID
	Group   string   // consumer group
	Topics  []string // the topics that the messages came from
	Class   string   // one of Classes
	Handler string
	Type    string // the message's type
	Key     Key    // nil: any
	// Since and Before limit the time at which they became dead letters, by the database's clock. Since is inclusive, Before is
	// exclusive.
	Since, Before time.Time
	Status        Status // default: Open
}

// IsZero reports whether the filter selects every open dead letter.
func (f Filter) IsZero() bool {
	return len(f.IDs)+len(f.Topics) == 0 && f.Key == nil && f.Since.IsZero() && f.Before.IsZero() && f.Status == "" &&
		f.Cause+f.Group+f.Class+f.Handler+f.Type == ""
}

// Classes returns the classes of failures.
func Classes() []string { return deadletter.Classes }

// maxIDs limits Filter.IDs.
const maxIDs = 10_000

// Validate returns an error if a field has an invalid value. Every method with a Filter calls it first.
func (f Filter) Validate() error {
	switch {
	case len(f.IDs) > maxIDs:
		return fmt.Errorf("%d ids: at most %d at once", len(f.IDs), maxIDs)
	case f.Class != "" && !slices.Contains(Classes(), f.Class):
		return fmt.Errorf("class %q: want one of %s", f.Class, strings.Join(Classes(), ", "))
	case !slices.Contains([]Status{"", Open, Redriven, Discarded, AnyStatus}, f.Status):
		return fmt.Errorf("status %q: want open, redriven, discarded or any", f.Status)
	case !f.Since.IsZero() && !f.Before.IsZero() && !f.Since.Before(f.Before):
		return fmt.Errorf("since %s is not before %s: no dead letter can match both", f.Since.Format(time.RFC3339),
			f.Before.Format(time.RFC3339))
	}
	return nil
}

// checkForAction also refuses a status, since only open dead letters can be acted on.
func (f Filter) checkForAction() error {
	if f.Status != "" && f.Status != Open {
		return errors.New("only open dead letters can be redriven or discarded: leave the status out")
	}
	return f.Validate()
}

// conditions builds a WHERE clause. It contains only conditions of fields that are set, so that the statement can use an index.
type conditions struct {
	all  []string
	args pgx.NamedArgs
}

func (c *conditions) add(sql, name string, value any) {
	c.all = append(c.all, sql)
	c.args[name] = value
}

func (c *conditions) String() string {
	if len(c.all) == 0 {
		return "true"
	}
	return strings.Join(c.all, "\n  AND ")
}

func (f Filter) conditions() *conditions {
	c := &conditions{args: pgx.NamedArgs{}}
	switch f.Status {
	case "", Open:
		c.all = append(c.all, "status = 'open'") // as a literal, since a parameter would not match the partial indexes
	case Redriven, Discarded:
		c.add("status = @status", "status", string(f.Status))
	}
	if f.IDs != nil {
		c.add("id = ANY (@ids)", "ids", f.IDs)
	}
	if len(f.Topics) > 0 {
		c.add("topic = ANY (@topics)", "topics", f.Topics)
	}
	if f.Key != nil {
		c.add("key = @key", "key", []byte(f.Key))
	}
	if !f.Since.IsZero() {
		c.add("created_at >= @since", "since", f.Since)
	}
	if !f.Before.IsZero() {
		c.add("created_at < @before", "before", f.Before)
	}
	for _, equal := range []struct{ column, value string }{
		{"cause", f.Cause}, {"consumer_group", f.Group}, {"error_class", f.Class}, {"handler", f.Handler},
		{"message_type", f.Type},
	} {
		if equal.value != "" {
			c.add(equal.column+" = @"+equal.column, equal.column, equal.value)
		}
	}
	return c
}

// A Page selects a part of a long list.
type Page struct {
	After string // the next that the previous page returned
	Limit int    // default: 100; maximum: 10,000
}

// Validate returns an error if the limit is invalid.
func (p Page) Validate() error {
	_, err := p.limit()
	return err
}

func (p Page) limit() (int, error) {
	switch {
	case p.Limit == 0:
		return 100, nil
	case p.Limit < 0 || p.Limit > 10_000:
		return 0, fmt.Errorf("limit %d: want 1 to 10000", p.Limit)
	}
	return p.Limit, nil
}
