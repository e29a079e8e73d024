package timeline

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
)

// Read searches for subject: a business key, or the id of a flow, of one of its messages or of a dead letter. It returns an error
// if the configuration is invalid, if the registry's client cannot be made, or if ctx ends. A source that cannot be reached is in
// Timeline.Unseen. An empty result is no error.
func Read(ctx context.Context, cfg Config, subject string) (*Timeline, error) {
	cfg, err := cfg.withDefaults()
	if err == nil {
		err = checkSubject(subject)
	}
	if err != nil {
		return nil, fmt.Errorf("timeline: %w", err)
	}
	t, err := read(ctx, cfg, subject)
	if err != nil {
		return nil, fmt.Errorf("timeline: %w", err)
	}
	if flow := t.flowOfOne(); flow != "" {
		if t, err = read(ctx, cfg, flow); err != nil {
			return nil, fmt.Errorf("timeline: %w", err)
		}
		t.Subject, t.Flow = subject, flow
	}
	return t, nil
}

// A reading is one pass over the sources.
type reading struct {
	cfg              Config
	subject          string
	payloads         payloads
	client           *kgo.Client // for queries; nil without brokers, and so is admin
	admin            *kadm.Client
	groups           map[string]group
	groupsSeen       bool
	groupsIncomplete bool                // some brokers have not listed their groups
	ends             map[partition]int64 // of the topics, when reading began
	of               int64               // number of records to read
	told             time.Time           // time of the last call of Progress
	seen             map[identity]int    // indexes in Entries
	dropped          int                 // number of entries over the limit
	bytes            int                 // of the texts and payloads of the entries
	passed           int                 // number of batches that are too large when decompressed
	paused           map[string]string   // by database: since when the relays of its outbox are paused, the operator and the reason
	timeline         Timeline
}

// An identity is equal for two records, or a record and a row, of the same message.
type identity struct {
	topic, id string
	redrive   int
}

func read(ctx context.Context, cfg Config, subject string) (*Timeline, error) {
	now := time.Now()
	r := &reading{
		cfg: cfg, subject: subject, told: now,
		groups: make(map[string]group), ends: make(map[partition]int64), seen: make(map[identity]int),
		paused: make(map[string]string),
		timeline: Timeline{
			Subject: subject, Since: now.Add(-cfg.Since).UTC(), Read: now.UTC(),
			Entries: []Entry{}, Findings: []Finding{}, Unseen: []Unseen{},
		},
	}
	var err error
	if r.payloads, err = newPayloads(ctx, cfg.Registry, cfg.Timeout); err != nil {
		return nil, err
	}
	if len(cfg.Brokers) > 0 {
		if r.client, err = kafka.NewClient(cfg.Brokers, cfg.Kafka...); err != nil {
			return nil, err
		}
		defer r.client.Close()
		r.admin = kadm.NewClient(r.client)
	}
	// The order matters: see the package comment.
	reachable := len(cfg.Brokers) > 0 && r.ask(ctx, "brokers "+strings.Join(cfg.Brokers, ","), r.client.Ping)
	r.groupsSeen = reachable && r.ask(ctx, "consumer groups", r.readGroups)
	r.databases(ctx)
	if reachable {
		if err := r.topics(ctx); err != nil {
			r.unseen("topics", err)
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if r.dropped > 0 {
		r.unseen(fmt.Sprintf("%d entries more", r.dropped), fmt.Errorf("the limit is %d, or %d MiB", MaxEntries, MaxBytes>>20))
	}
	r.timeline.order()
	r.conclude()
	return &r.timeline, nil
}

// ask runs one query to the brokers. If it fails, ask adds it to Unseen and returns false.
func (r *reading) ask(ctx context.Context, what string, question func(context.Context) error) bool {
	limited, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	if err := question(limited); err != nil {
		r.unseen(what, err)
		return false
	}
	return true
}

// topics reads the partitions to which the subject belongs if it is a key, and the others if no entry has it as its key.
func (r *reading) topics(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	names, err := r.names(limited)
	if err != nil {
		return err
	}
	spans, err := r.spans(limited, names)
	if err != nil {
		return err
	}
	if r.cfg.ScanAll {
		return r.scan(ctx, spans)
	}
	own, others := r.ofKey(spans, r.subject)
	if err := r.scan(ctx, own); err != nil {
		return err
	}
	for i := range r.timeline.Entries {
		if r.timeline.Entries[i].Key == r.subject {
			return nil
		}
	}
	return r.scan(ctx, others)
}

func (e *Entry) concerns(subject string) bool {
	return e.Key == subject || e.CorrelationID == subject || e.ID == subject || e.DeadLetter != nil && e.DeadLetter.ID == subject
}

// add adds an entry, or merges it into the entry of the same message.
func (r *reading) add(e Entry) {
	e.At = e.At.UTC()
	id := identity{e.topic(), e.identity, e.Redrive}
	if e.DeadLetter != nil {
		id = identity{id: e.DeadLetter.ID}
	}
	at, known := r.seen[id]
	if !known || e.Kind == Held || id.id == "" {
		if r.holdsEnough() {
			r.dropped++
			return
		}
		r.bytes += e.size()
		if e.Kind != Held {
			r.seen[id] = len(r.timeline.Entries)
		}
		r.timeline.Entries = append(r.timeline.Entries, e)
		return
	}
	switch old := &r.timeline.Entries[at]; {
	case e.DeadLetter != nil && e.DeadLetter.Database != "": // the table is current; the copy was written before
		e.Outbox, e.Record = old.Outbox, old.Record
		*old = e
	case e.Record == nil:
		old.Outbox = e.Outbox
	case old.Record == nil:
		old.Record, old.Outbox = e.Record, nil // published, and its row not deleted yet
	default:
		old.Record.Repeats++
	}
}

// size returns the bytes of an entry that depend on its message.
func (e *Entry) size() int {
	n := len(e.ID) + len(e.Type) + len(e.Key) + len(e.CorrelationID) + len(e.CausationID) + len(e.Payload) + len(e.PayloadNote) + len(e.identity)
	for _, name := range e.Expects {
		n += len(name)
	}
	if l := e.DeadLetter; l != nil {
		n += len(l.ID) + len(l.Handler) + len(l.Error) + len(l.Topic)
	}
	return n
}

func (r *reading) unseen(what string, why error) {
	r.timeline.Unseen = append(r.timeline.Unseen, missing(what, why))
}

func missing(what string, why error) Unseen { return Unseen{what, cut(why.Error(), 500)} }

// flowOfOne returns the flow of the message whose id the subject is; "" if the subject is a key or a flow, or was not found.
func (t *Timeline) flowOfOne() (flow string) {
	for _, e := range t.Entries {
		if e.Key == t.Subject || e.CorrelationID == t.Subject {
			return ""
		}
		flow = e.CorrelationID
	}
	return flow
}
