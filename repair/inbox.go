package repair

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/inbox"
)

// A State is what has become of a message in one group.
type State string

// The states. A message that was redriven has one for each of its lives.
const (
	Handled State = "handled"     // it has taken effect
	Held    State = "held"        // it failed and is tried again, or waits behind another of its key
	Dead    State = "dead letter" // nobody tries it again by himself
)

// A Sighting is one place where a message was found. Its JSON is what troupe inbox find prints.
type Sighting struct {
	Group string `json:"group"`
	// Identity is the message's in the inbox: its id, and where that is no unique UUID a hash of its source and id behind "~".
	Identity string     `json:"identity"`
	Redrive  int        `json:"redrive"` // 0: the message as it was sent first
	State    State      `json:"state"`
	At       time.Time  `json:"at"`                 // handled, or failed last, or began to wait
	Place    *Place     `json:"place,omitempty"`    // held
	NextTry  *time.Time `json:"next_try,omitempty"` // held; null: it waits behind another
	Attempts int        `json:"attempts,omitempty"`
	Error    string     `json:"error,omitempty"`
	Letter   *uuid.UUID `json:"dead_letter,omitempty"`
	Status   Status     `json:"status,omitempty"` // of the dead letter
}

// Find says what has become of the message with that id (ce_id; of a message without one, topic id/partition/offset) in
// every group of this database. Nothing found means that it has not come yet, or was handled so long ago that the inbox
// has forgotten it. An id that is no UUID may be of several messages, each of another source: Sighting.Identity tells them
// apart, and is envelope.Message.Identity of the source and the id.
func (d *Desk) Find(ctx context.Context, id string) ([]Sighting, error) {
	if id == "" {
		return nil, fmt.Errorf("find message: no id")
	}
	var all []Sighting
	dead := make(map[string]bool) // group, redrive and identity
	for _, find := range [...]func(context.Context, string) ([]Sighting, error){
		d.findDead, d.findHeld, d.findRecent, d.findHandled,
	} {
		found, err := find(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("find message: %w", err)
		}
		for _, s := range found {
			life := func(identity string) string { return fmt.Sprintf("%s %d %s", s.Group, s.Redrive, identity) }
			if s.State == Handled && dead[life(s.Identity)] { // a dead letter has an inbox row, too
				continue
			}
			if s.State == Dead { // a version before has stored its id alone
				dead[life(s.Identity)], dead[life(inbox.ID(id))] = true, true
			}
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b Sighting) int {
		if c := strings.Compare(a.Group, b.Group); c != 0 {
			return c
		}
		if c := strings.Compare(a.Identity, b.Identity); c != 0 {
			return c
		}
		return a.Redrive - b.Redrive
	})
	return all, nil
}

func (d *Desk) findDead(ctx context.Context, id string) ([]Sighting, error) {
	return query(ctx, d, `
		SELECT consumer_group, redrives, last_failed_at, attempts, error, id, status, headers, topic_id, partition, "offset"
		FROM troupe.dead_letters
		WHERE message_id = @id
		ORDER BY last_failed_at`, pgx.NamedArgs{"id": inbox.ID(id)}, func(row pgx.CollectableRow) (Sighting, error) {
		s := Sighting{State: Dead}
		var headers []byte
		var topicID uuid.UUID
		var partition int32
		var offset int64
		err := row.Scan(&s.Group, &s.Redrive, &s.At, &s.Attempts, &s.Error, &s.Letter, &s.Status,
			&headers, (*[16]byte)(&topicID), &partition, &offset)
		m, _ := read(headers, topicID, partition, offset)
		s.Identity = m.identity()
		return s, err
	})
}

// findHandled goes from group to group by the primary key, since the table has an index on the id alone only for identities
// with a hash of the source.
func (d *Desk) findHandled(ctx context.Context, id string) ([]Sighting, error) {
	return query(ctx, d, `
		WITH RECURSIVE groups (name) AS (
		  SELECT min(consumer_group) FROM troupe.inbox
		  UNION ALL
		  SELECT (SELECT min(consumer_group) FROM troupe.inbox WHERE consumer_group > groups.name)
		  FROM groups
		  WHERE name IS NOT NULL)
		SELECT i.consumer_group, i.redrive, i.handled_at, i.message_id
		FROM groups
		JOIN troupe.inbox i ON i.consumer_group = groups.name AND i.message_id = @id
		UNION ALL
		SELECT consumer_group, redrive, handled_at, message_id
		FROM troupe.inbox
		WHERE left(message_id, -17) = @id AND left(right(message_id, 17), 1) = '~' -- as inbox_sources has it`,
		pgx.NamedArgs{"id": inbox.ID(id)}, func(row pgx.CollectableRow) (Sighting, error) {
			s := Sighting{State: Handled}
			return s, row.Scan(&s.Group, &s.Redrive, &s.At, &s.Identity)
		})
}

// recent is where participants keep identities that are UUIDv7: by their day in a ring of 32 tables. All others, and those
// of days that the ring does not hold, stand in troupe.inbox; an identity in either is known.
const recent = "troupe.inbox_recent WHERE slot = @slot AND id = @uuid"

// recentArgs are those of recent. No: the identity cannot stand there.
func recentArgs(identity string) (args pgx.NamedArgs, ok bool) {
	id, day, ok := inbox.Recent(identity)
	return pgx.NamedArgs{"slot": int16(day % inbox.Slots), "uuid": id}, ok
}

func (d *Desk) findRecent(ctx context.Context, id string) ([]Sighting, error) {
	args, ok := recentArgs(id)
	if !ok {
		return nil, nil
	}
	const sql = "SELECT consumer_group, redrive, handled_at FROM " + recent
	return query(ctx, d, sql, args, func(row pgx.CollectableRow) (Sighting, error) {
		s := Sighting{State: Handled, Identity: id}
		return s, row.Scan(&s.Group, &s.Redrive, &s.At)
	})
}

// findHeld looks for the id in the headers' bytes and then reads them.
func (d *Desk) findHeld(ctx context.Context, id string) ([]Sighting, error) {
	type held struct {
		Sighting
		id string
	}
	rows, err := query(ctx, d, `
		SELECT consumer_group, topic, topic_id, partition, "offset", headers, attempts, next_try, coalesce(last_error, ''),
		       coalesce(last_failed_at, created_at)
		FROM troupe.held
		WHERE position(@id::bytea IN headers) > 0 OR concat_ws('/', topic_id, partition, "offset") = @text
		ORDER BY position`, pgx.NamedArgs{"id": []byte(id), "text": strings.ToValidUTF8(strings.ReplaceAll(id, "\x00", ""), "")},
		func(row pgx.CollectableRow) (h held, err error) {
			var p Place
			var topicID uuid.UUID
			var headers []byte
			h.State, h.Place = Held, &p
			err = row.Scan(&h.Group, &p.Topic, (*[16]byte)(&topicID), &p.Partition, &p.Offset, &headers, &h.Attempts, &h.NextTry,
				&h.Error, &h.At)
			m, _ := read(headers, topicID, p.Partition, p.Offset)
			h.id, h.Identity, h.Redrive = m.id(), m.identity(), deadletter.Redrives(m.Extra, h.Group)
			return h, err
		})
	var found []Sighting
	for _, h := range rows {
		if h.id == id {
			found = append(found, h.Sighting)
		}
	}
	return found, err
}
