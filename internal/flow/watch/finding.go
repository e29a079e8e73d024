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

// Kind is the kind of a finding.
type Kind string

// These are the kinds.
const (
	Missing    Kind = "missing"    // no message that a service declares to send was published in time
	Late       Kind = "late"       // the message was published after its time
	Stuck      Kind = "stuck join" // some of its messages have arrived, its time is over, and it has sent nothing
	Unexpected Kind = "unexpected" // a message that no service declares
)

// A Finding is a deviation of a flow from the declarations of its services.
type Finding struct {
	Kind Kind   `json:"kind"`
	Text string `json:"text"` // for people
	// Topic, Type, Correlation and Key belong to the message that should have been answered, or that was not expected. Message is
	// its id, or the hash of an id that is no UUID; "" if the rule finds answers by the key.
	Topic       string    `json:"topic"`
	Type        string    `json:"type"`
	Correlation string    `json:"correlation_id"`
	Key         string    `json:"key,omitempty"`
	Message     string    `json:"message_id,omitempty"`
	At          time.Time `json:"at"` // the time of its publication
	FoundAt     time.Time `json:"found_at"`
	// Hop should have sent one of Expected within Within. Name is the name of its join or expectation.
	Hop      string        `json:"hop,omitempty"`
	Name     string        `json:"name,omitempty"`
	Expected []string      `json:"expected,omitempty"`
	Within   time.Duration `json:"within_ns,omitempty"`
	// Absent lists the messages that a stuck join still waits for, as "topic type".
	Absent []string `json:"absent,omitempty"`
	// CameAt is the time at which one of Expected was published, too late; nil if none was yet.
	CameAt *time.Time `json:"came_at,omitempty"`
	// Messages counts the unexpected messages of Type on Topic up to LastAt. They are one finding.
	Messages int64      `json:"messages,omitempty"`
	LastAt   *time.Time `json:"last_at,omitempty"`
}

// said returns the finding with its Text.
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
		f.Text = fmt.Sprintf("%s on %s is declared by no service", orNone(f.Type), f.Topic)
	}
	return f
}

func orNone(typ string) string {
	if typ == "" {
		return "a message without a type"
	}
	return typ
}

// findingKeys identify findings.
type findingKeys struct {
	rules  []int32
	abouts []uuid.UUID
}

func (k *findingKeys) add(rule int32, about uuid.UUID) {
	k.rules, k.abouts = append(k.rules, rule), append(k.abouts, about)
}

// findingFilter selects findings. The zero value selects none, since most is 0.
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

// of fills in the fields that the rule determines.
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
