package watch

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

//go:embed sql/read_findings.sql
var readFindingsSQL string

// Kind says what was found.
type Kind string

// The kinds.
const (
	Missing    Kind = "missing"    // what a service declares to send did not come in time
	Late       Kind = "late"       // it came after its time
	Stuck      Kind = "stuck join" // some of its messages have come, its time is over, and it has said nothing
	Unexpected Kind = "unexpected" // a message that nobody declares
)

// A Finding is where a flow was not as its services declare it.
type Finding struct {
	Kind Kind   `json:"kind"`
	Text string `json:"text"` // for people
	// Topic, Type, Correlation and Key are of the message after which something should have come, or that was not expected.
	// Message is its id, or the hash of an id that is no UUID; "" for what goes by the key.
	Topic       string    `json:"topic"`
	Type        string    `json:"type"`
	Correlation string    `json:"correlation_id"`
	Key         string    `json:"key,omitempty"`
	Message     string    `json:"message_id,omitempty"`
	At          time.Time `json:"at"` // when it was published
	FoundAt     time.Time `json:"found_at"`
	// Hop should have sent one of Expected Within; Name is of its join or expectation.
	Hop      string        `json:"hop,omitempty"`
	Name     string        `json:"name,omitempty"`
	Expected []string      `json:"expected,omitempty"`
	Within   time.Duration `json:"within_ns,omitempty"`
	// Absent are the messages that a stuck join still waits for: "topic type".
	Absent []string `json:"absent,omitempty"`
	// CameAt is when one of Expected came after all; nil: not yet.
	CameAt *time.Time `json:"came_at,omitempty"`
	// Messages is how many unexpected ones there were, up to LastAt. They are told of once.
	Messages int64      `json:"messages,omitempty"`
	LastAt   *time.Time `json:"last_at,omitempty"`
}

// said gives a finding its text.
func (f Finding) said() Finding {
	who := f.Hop
	if f.Name != "" {
		who += " (" + f.Name + ")"
	}
	want := strings.Join(f.Expected, " or ")
	switch f.Kind {
	case Missing:
		f.Text = fmt.Sprintf("%s has not sent %s within %s after %s of %s", who, want, f.Within, f.Type, f.Topic)
	case Late:
		f.Text = fmt.Sprintf("%s took %s after %s of %s, not %s: %s", who, f.CameAt.Sub(f.At).Round(time.Millisecond), f.Type, f.Topic, f.Within, want)
	case Stuck:
		f.Text = fmt.Sprintf("%s has not ended within %s after %s of %s", who, f.Within, f.Type, f.Topic)
		if len(f.Absent) > 0 {
			f.Text += ": it waits for " + strings.Join(f.Absent, ", ")
		} else {
			f.Text += ": all have come, and it has not sent " + want
		}
	case Unexpected:
		f.Text = fmt.Sprintf("%s on %s is declared by nobody", orNone(f.Type), f.Topic)
	}
	return f
}

func orNone(typ string) string {
	if typ == "" {
		return "a message without a type"
	}
	return typ
}

// findingKeys name findings.
type findingKeys struct {
	rules  []int32
	abouts []uuid.UUID
}

func (k *findingKeys) add(rule int32, about uuid.UUID) {
	k.rules, k.abouts = append(k.rules, rule), append(k.abouts, about)
}

// findingFilter says which; its zero value is none of them, since most is 0.
type findingFilter struct {
	keys         findingKeys
	correlations []uuid.UUID
	foundAt      *time.Time
	open         bool
	most         int
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func readFindings(ctx context.Context, db querier, rules []rule, flow int32, filter findingFilter) (found []Finding, err error) {
	byKey := []int32{}
	for i, r := range rules {
		if r.kind == Stuck {
			byKey = append(byKey, int32(i))
		}
	}
	rows, err := db.Query(ctx, readFindingsSQL, pgx.NamedArgs{
		"flow": flow, "found_at": filter.foundAt, "correlations": filter.correlations, "rules": filter.keys.rules,
		"abouts": filter.keys.abouts, "open": filter.open, "most": filter.most, "by_key": byKey,
	})
	if err != nil {
		return nil, fmt.Errorf("findings: %w", err)
	}
	var number int32
	var about uuid.UUID
	var arrived []string
	var f Finding
	scan := []any{&number, &about, &f.Topic, &f.Type, &f.Correlation, &f.Key, &f.At, &f.FoundAt, &f.CameAt, &arrived}
	_, err = pgx.ForEachRow(rows, scan, func() error {
		if int(number) < len(rules) {
			found = append(found, f.of(rules[number], about, arrived))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("findings: %w", err)
	}
	return found, nil
}

// of fills in what the rule says.
func (f Finding) of(r rule, about uuid.UUID, arrived []string) Finding {
	f.Kind, f.Hop, f.Name, f.Expected, f.Within = r.kind, r.hop, r.name, r.wanted(), r.within
	f.At, f.FoundAt = f.At.UTC(), f.FoundAt.UTC()
	if !r.byKey {
		f.Message = about.String()
	}
	if f.CameAt != nil {
		came := f.CameAt.UTC()
		f.Kind, f.CameAt = Late, &came
	}
	if f.Kind == Stuck {
		for _, m := range r.on {
			if text := m.topic + " " + m.typ; !slices.Contains(arrived, text) {
				f.Absent = append(f.Absent, text)
			}
		}
	}
	return f.said()
}
