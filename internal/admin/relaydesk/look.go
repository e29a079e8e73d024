package desk

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// An Outbox holds the state of one outbox.
type Outbox struct {
	Table  string `json:"table"`  // schema.table of a table with a mapping; "": troupe.outbox
	Source string `json:"source"` // wal or poll; "": no relay has chosen yet
	Why    string `json:"source_why"`
	Paused *Pause `json:"paused"` // null: not paused
	Shards int    `json:"shards"` // number of shards; 0: no relay has run yet
	// Leases are ordered by shard. A lease that no relay has taken yet is missing.
	Leases []Lease `json:"leases"`
	Slot   *Slot   `json:"slot"` // null: there is none
	// SlotName names the slot that is streamed, or was; "": none.
	SlotName string   `json:"slot_name"`
	Samples  []Sample `json:"samples"` // of the last day, oldest first; none for times at which no relay took one
	Topics   []Topic  `json:"topics"`  // topics with failed rows, the most parked first; 200 at most: Parked counts any topic
}

// A Lease is the right to publish a shard.
type Lease struct {
	Shard   int       `json:"shard"` // negative: a table with a mapping
	Holder  string    `json:"holder"`
	Term    int64     `json:"term"`
	Held    bool      `json:"held"` // false: Holder was the last holder
	Expires time.Time `json:"expires_at"`
	// Remaining is the time until the lease expires, in seconds by the database's clock; negative: expired that long ago.
	Remaining float64 `json:"expires_in_seconds"`
	Wanted    string  `json:"wanted_by,omitempty"` // a relay that holds fewer shards and requests this one
}

// A Slot holds the state of a replication slot and how much log the server keeps for it.
type Slot struct {
	Name        string     `json:"name"`
	Active      bool       `json:"active"`     // a client streams it
	WALStatus   string     `json:"wal_status"` // reserved, extended, unreserved or lost
	Retained    int64      `json:"retained_bytes"`
	Unconfirmed int64      `json:"unconfirmed_bytes"`
	Safe        *int64     `json:"safe_wal_size"`  // bytes that may be written until the slot is in danger; null: no limit is set
	Inactive    *time.Time `json:"inactive_since"` // Postgres 17 and newer
}

// A Sample holds the most that a slot retained in the five minutes from At.
type Sample struct {
	At       time.Time `json:"at"`
	Retained int64     `json:"retained_bytes"`
}

// A Topic counts failed rows of one topic.
type Topic struct {
	Topic    string `json:"topic"`
	Parked   int    `json:"parked"`
	Retrying int    `json:"retrying"`
	Waiting  int    `json:"waiting"` // waiting behind rows of their keys
	// Since is when the oldest of these rows, parked or retrying, failed first. Nil: there is none.
	Since *time.Time `json:"since"`
	Error string     `json:"error"` // of the row with the lowest position that failed
}

// Look reads the state of each outbox of a database: troupe.outbox first, then tables with a mapping, by name. It runs four
// statements, however many outboxes there are.
func Look(ctx context.Context, db DB) ([]Outbox, error) {
	outboxes := []Outbox{{}}
	byShard := map[int]int{0: 0}
	type row struct {
		Lease
		table, source, why, slot string
		shards                   int
		since                    *time.Time
		actor, reason            string
	}
	leases, err := all(ctx, db, readLeases, nil, func(one pgx.CollectableRow) (r row, err error) {
		return r, one.Scan(&r.Shard, &r.table, &r.Holder, &r.Term, &r.Expires, &r.Remaining, &r.Held, &r.Wanted, &r.shards, &r.source, &r.why,
			&r.since, &r.actor, &r.reason, &r.slot)
	})
	if err != nil {
		return nil, err
	}
	var slots []string
	for _, l := range leases {
		if l.Shard < 0 {
			byShard[l.Shard] = len(outboxes)
			outboxes = append(outboxes, Outbox{Table: l.table})
		}
		o := &outboxes[byShard[max(l.Shard, 0)]]
		if l.Shard < 0 {
			o = &outboxes[byShard[l.Shard]]
		}
		if l.Shard <= 0 {
			o.Source, o.Why, o.SlotName = l.source, l.why, l.slot
			if l.since != nil {
				o.Paused = &Pause{*l.since, l.actor, l.reason}
			}
			if l.slot != "" {
				slots = append(slots, l.slot)
			}
		}
		if l.Term > 0 { // term 0: it was paused before any relay ran
			o.Shards = max(o.Shards, l.shards)
			o.Leases = append(o.Leases, l.Lease)
		}
	}
	if err := readSlotsOf(ctx, db, outboxes, slots); err != nil {
		return nil, err
	}
	if err := readSamplesOf(ctx, db, outboxes, byShard); err != nil {
		return nil, err
	}
	return outboxes, readTopics(ctx, db, outboxes)
}

func readSlotsOf(ctx context.Context, db DB, outboxes []Outbox, names []string) error {
	slots, err := all(ctx, db, readSlots, pgx.NamedArgs{"slots": names}, func(one pgx.CollectableRow) (s Slot, err error) {
		return s, one.Scan(&s.Name, &s.Active, &s.WALStatus, &s.Retained, &s.Unconfirmed, &s.Safe, &s.Inactive)
	})
	for i := range outboxes {
		for _, s := range slots {
			if s.Name == outboxes[i].SlotName {
				outboxes[i].Slot = &s
			}
		}
	}
	return err
}

func readSamplesOf(ctx context.Context, db DB, outboxes []Outbox, byShard map[int]int) error {
	type sample struct {
		shard int
		slot  string
		Sample
	}
	samples, err := all(ctx, db, readSamples, nil, func(one pgx.CollectableRow) (s sample, err error) {
		return s, one.Scan(&s.shard, &s.slot, &s.At, &s.Retained)
	})
	for _, s := range samples {
		if n, known := byShard[s.shard]; known && outboxes[n].SlotName == s.slot {
			outboxes[n].Samples = append(outboxes[n].Samples, s.Sample)
		}
	}
	return err
}

func readTopics(ctx context.Context, db DB, outboxes []Outbox) error {
	type topic struct {
		table string
		Topic
	}
	topics, err := all(ctx, db, countFailures, nil, func(one pgx.CollectableRow) (t topic, err error) {
		return t, one.Scan(&t.table, &t.Topic.Topic, &t.Parked, &t.Retrying, &t.Waiting, &t.Since, &t.Error)
	})
	for i := range outboxes {
		for _, t := range topics {
			if t.table == outboxes[i].Table {
				outboxes[i].Topics = append(outboxes[i].Topics, t.Topic)
			}
		}
	}
	return err
}
