package watch

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/topics"
)

var (
	//go:embed sql/read_flow.sql
	readFlow string
	//go:embed sql/read_key.sql
	readKey string
)

// MaxMessages limits how many messages Show reads of a flow. Find reads up to ten times as many for all flows that it reads
// together.
const MaxMessages = 10_000

// maxListed limits how many flows are listed at once.
const maxListed = 1000

// ErrNone is wrapped by errors about flows and keys that no watcher has seen.
var ErrNone = errors.New("not seen by a watcher")

// Status is the status of a flow.
type Status string

// These are the statuses. A flow in which a message is missing, or a join is stuck, is Deviant until the message arrives.
const (
	UnderWay    Status = "under way"
	Deviant     Status = "deviant"
	Parked      Status = "parked"      // a dead letter has no answer yet
	Compensated Status = "compensated" // it has ended, and one of its messages is a failure
	Completed   Status = "completed"
)

// A Flow is the set of messages that were seen of one correlation id.
type Flow struct {
	ID      string    `json:"correlation_id"`
	Key     string    `json:"key"` // the key of its first message
	Status  Status    `json:"status"`
	BeganAt time.Time `json:"began_at"`
	LastAt  time.Time `json:"last_at"`
	// Count is the number of its messages. Find leaves Messages empty.
	Count    int       `json:"count"`
	Messages []Message `json:"messages,omitempty"`
	Findings []Finding `json:"findings,omitempty"`
	// Waiting lists the answers that may still arrive in time. Find leaves it empty.
	Waiting []Waiting `json:"waiting,omitempty"`
	// Cut reports that not all messages were read, because of MaxMessages.
	Cut bool `json:"cut,omitempty"`
}

// A Message is one message of a flow. The messages of a Flow are ordered by time, each one after its cause.
type Message struct {
	Topic   string           `json:"topic"`
	Hop     string           `json:"hop"`
	Kind    topics.Kind      `json:"kind"`
	Type    string           `json:"type"`
	Key     string           `json:"key"`
	ID      string           `json:"id"`
	Outcome envelope.Outcome `json:"outcome,omitempty"`
	// WrittenAt is the time in ce_time, At the time of publication.
	WrittenAt time.Time `json:"written_at"`
	At        time.Time `json:"at"`
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	// Repeats counts the further records with this message.
	Repeats int `json:"repeats,omitempty"`
	// Cause is the index of the message that it follows from; -1 if none was seen.
	Cause int `json:"cause"`

	id, causation uuid.UUID
}

// Waiting is an answer to a message of a flow that may still arrive in time.
type Waiting struct {
	Message int       `json:"message"` // index in Flow.Messages
	Text    string    `json:"text"`
	Until   time.Time `json:"until"`
}

// A Desk reads the messages and findings that a watcher has stored of one flow. It is safe for concurrent use.
type Desk struct {
	pool   *pgxpool.Pool
	name   string
	flow   int32
	rules  []rule
	seenAt *time.Time
	// Services are the declarations that the flow is judged by.
	Services []flow.Declaration
}

// OpenDesk reads the declarations of a flow and returns a Desk for it. With "" it takes the only flow that is watched in the
// database. Its error wraps ErrNone if the flow is not watched there.
func OpenDesk(ctx context.Context, pool *pgxpool.Pool, flow string) (*Desk, error) {
	rows, err := pool.Query(ctx, `SELECT f.flow, n.name, f.declared, f.answer, f.seen_at
		FROM troupe.watch_flows AS f JOIN troupe.watch_names AS n ON n.id = f.flow ORDER BY n.name`)
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	var found []*Desk
	var names []string
	d := Desk{pool: pool}
	var declared []byte
	var answer time.Duration
	_, err = pgx.ForEachRow(rows, []any{&d.flow, &d.name, &declared, &answer, &d.seenAt}, func() error {
		names = append(names, d.name)
		if flow != "" && flow != d.name {
			return nil
		}
		one := d
		if err := json.Unmarshal(declared, &one.Services); err != nil {
			return fmt.Errorf("declaration of %s: %w", d.name, err)
		}
		one.rules = rulesOf(one.Services, answer)
		found = append(found, &one)
		return nil
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("watch: %w", err)
	case len(names) == 0:
		return nil, fmt.Errorf("watch: %w: no flow is watched in this database", ErrNone)
	case len(found) == 0:
		return nil, fmt.Errorf("watch: flow %q: %w: want one of %s", flow, ErrNone, strings.Join(names, ", "))
	case len(found) > 1:
		return nil, fmt.Errorf("watch: several flows are watched in this database: want one of %s", strings.Join(names, ", "))
	}
	return found[0], nil
}

// Name returns the name of the flow.
func (d *Desk) Name() string { return d.name }

// SeenAt returns the latest time at which all records of the brokers were stored and judged; the zero time if there is none yet.
func (d *Desk) SeenAt() time.Time {
	if d.seenAt == nil {
		return time.Time{}
	}
	return d.seenAt.UTC()
}

// Show returns a flow by its correlation id, or the newest flow of a business key. Its error wraps ErrNone if there is none.
func (d *Desk) Show(ctx context.Context, subject string) (*Flow, error) {
	id, _ := identity([]byte(subject))
	err := d.pool.QueryRow(ctx, readKey, pgx.NamedArgs{"flow": d.flow, "key": string(textOf([]byte(subject))), "id": id}).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("watch: flow or key %q: %w", subject, ErrNone)
	}
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	byID, err := d.read(ctx, []uuid.UUID{id})
	if err != nil {
		return nil, err
	}
	if byID[id] == nil {
		return nil, fmt.Errorf("watch: flow or key %q: %w", subject, ErrNone)
	}
	return byID[id], nil
}

// Findings returns at most limit findings: first the unexpected messages, then the others, each newest first. With open it leaves
// out the late ones.
func (d *Desk) Findings(ctx context.Context, open bool, limit int) ([]Finding, error) {
	rows, err := d.pool.Query(ctx, `SELECT t.name, y.name, u.messages, u.first_at, u.last_at, coalesce(u.flow_text, u.correlation::text)
		FROM troupe.watch_unexpected AS u
		JOIN troupe.watch_names AS t ON t.id = u.topic
		JOIN troupe.watch_names AS y ON y.id = u.type
		WHERE u.flow = $1 ORDER BY u.last_at DESC LIMIT $2`, d.flow, limit)
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	var found []Finding
	f := Finding{Kind: Unexpected}
	var last time.Time
	_, err = pgx.ForEachRow(rows, []any{&f.Topic, &f.Type, &f.Messages, &f.At, &last, &f.Correlation}, func() error {
		one, until := f, last.UTC()
		one.At, one.FoundAt, one.LastAt = f.At.UTC(), f.At.UTC(), &until
		found = append(found, one.said())
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	others, err := readFindings(ctx, d.pool, d.rules, d.flow, findingFilter{open: open, most: max(limit-len(found), 0)})
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	return append(found, others...), nil
}

// read returns flows with their messages and findings.
func (d *Desk) read(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]*Flow, error) {
	most := MaxMessages * min(len(ids), 10)
	rows, err := d.pool.Query(ctx, readFlow, pgx.NamedArgs{"flow": d.flow, "correlations": ids, "most": most + 1})
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	byID := make(map[uuid.UUID]*Flow)
	var id uuid.UUID
	var causation *uuid.UUID
	var outcome int16
	var correlation string
	var m Message
	n := 0
	scan := []any{&id, &m.Topic, &m.Type, &m.Partition, &m.Offset, &m.At, &m.WrittenAt, &outcome, &m.id, &m.ID, &causation, &m.Key, &correlation}
	_, err = pgx.ForEachRow(rows, scan, func() error {
		f := byID[id]
		if f == nil {
			f = &Flow{ID: correlation}
			byID[id] = f
		}
		if n++; n > most {
			f.Cut = true
			return nil
		}
		one := m
		one.At, one.WrittenAt, one.causation = m.At.UTC(), m.WrittenAt.UTC(), uuid.Nil
		if causation != nil {
			one.causation = *causation
		}
		if outcome > 0 && int(outcome) < len(outcomes) {
			one.Outcome = outcomes[outcome]
		}
		if t, err := topics.Parse(m.Topic); err == nil {
			one.Hop, one.Kind = t.Hop.String(), t.Kind
		}
		f.Messages = append(f.Messages, one)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	found, err := readFindings(ctx, d.pool, d.rules, d.flow, findingFilter{correlations: ids, most: most})
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	now := time.Now()
	for _, f := range byID {
		f.fold()
		f.order()
		for _, one := range found {
			if one.Correlation == f.ID {
				f.Findings = append(f.Findings, one)
			}
		}
		f.conclude(d.rules, now)
	}
	return byID, nil
}
