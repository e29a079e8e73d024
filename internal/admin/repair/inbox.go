package repair

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/inbox"
)

// State is the state of a message in one group.
type State string

// These are the states. A redriven message has one for each of its deliveries.
const (
	Handled State = "handled"     // it has taken effect
	Held    State = "held"        // it failed and will be retried, or waits behind another one of its key
	Dead    State = "dead letter" // it is not retried any more
)

// A Sighting is one place where a message was found. Its JSON is the output of troupe inbox find.
type Sighting struct {
	Group string `json:"group"`
	// Identity identifies the message in the inbox: its id, or if that is no UUID, the id, "~" and a hash of its source and id, or
	// without a ce_id topic id/partition/offset, "~" and a hash of its record.
	Identity string     `json:"identity"`
	Redrive  int        `json:"redrive"` // 0: the first delivery
	State    State      `json:"state"`
	At       time.Time  `json:"at"`                 // time when it was handled, last failed, or began to wait
	Place    *Place     `json:"place,omitempty"`    // if held
	NextTry  *time.Time `json:"next_try,omitempty"` // if held; null: it waits behind another
	Attempts int        `json:"attempts,omitempty"`
	Error    string     `json:"error,omitempty"`
	Letter   *uuid.UUID `json:"dead_letter,omitempty"`
	Status   Status     `json:"status,omitempty"` // of the dead letter
}

// Find returns the states of the message with that id in every group of this database. The id is ce_id, or for a message without
// one, topic id/partition/offset, with or without the hash of its identity. No result means that the message has not arrived yet,
// waits on a retry topic, or was handled so long ago that the inbox no longer contains it. An id that is no UUID may belong to
// several messages of different sources: Sighting.Identity distinguishes them, and is envelope.Message.Identity of source and id. Of dead letters, held
// messages, local work and handled messages Find returns at most maxSightings each, or fewer with long errors; more reports whether there are more. If
// there are more dead letters, it returns no handled messages, since some of these may be dead letters.
func (d *Desk) Find(ctx context.Context, id string) (all []Sighting, more bool, err error) {
	if id == "" {
		return nil, false, fmt.Errorf("find message: no id")
	}
	moreDead := false
	dead := make(map[string]bool) // group, redrive and identity
	for i, find := range [...]func(context.Context, string) ([]Sighting, bool, error){
		d.findDead, d.findHeld, d.findLocal, d.findRecent, d.findHandled,
	} {
		found, cut, err := find(ctx, id)
		if err != nil {
			return nil, false, fmt.Errorf("find message: %w", err)
		}
		more, moreDead = more || cut, moreDead || cut && i == 0
		for _, s := range found {
			life := func(identity string) string { return fmt.Sprintf("%s %d %s", s.Group, s.Redrive, identity) }
			if s.State == Handled && (moreDead || dead[life(s.Identity)]) { // a dead letter has an inbox row, too
				continue
			}
			if s.State == Dead { // an earlier version stored the id alone
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
	return all, more, nil
}

// unnamedPlace matches topic id, partition and offset of a message without ce_id, whose id has a hash of its record behind them.
var unnamedPlace = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/[0-9]{1,9}/[0-9]{1,18}$`)

// unnamedID matches the whole id that a participant gives such a message: the place, ~ and the hash.
var unnamedID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/[0-9]{1,9}/[0-9]{1,18}~[0-9a-f]{16}$`)

// maxSightings limits the results of each kind. A producer, or a service, may make any number of messages with one id.
const maxSightings = 1000

// sightings collects the rows that scan reports to be the message, one row in memory at a time: at most maxSightings, or fewer if their texts have
// admin.PageBytes already. more reports whether others follow.
func (d *Desk) sightings(
	ctx context.Context, sql string, args pgx.NamedArgs, scan func(pgx.CollectableRow) (s Sighting, found bool, err error),
) (all []Sighting, more bool, err error) {
	rows, err := d.pool.Query(ctx, sql, args)
	if err != nil {
		return nil, false, explain(err)
	}
	defer rows.Close()
	for size := 0; !more && rows.Next(); {
		s, found, err := scan(rows)
		switch {
		case err != nil:
			return nil, false, explain(err)
		case !found:
		case len(all) == maxSightings || size >= admin.PageBytes:
			more = true
		default:
			all = append(all, s)
			size += len(s.Group) + len(s.Identity) + len(s.Error)
			if s.Place != nil {
				size += len(s.Place.Topic)
			}
		}
	}
	rows.Close()
	return all, more, explain(rows.Err())
}

func (d *Desk) findDead(ctx context.Context, id string) ([]Sighting, bool, error) {
	where, args := "message_id = @id", pgx.NamedArgs{"id": inbox.ID(id)}
	if unnamedPlace.MatchString(id) {
		where += " OR left(message_id, -17) = @id AND left(right(message_id, 17), 1) = '~'" // as dead_letters_unnamed has it
	}
	return d.sightings(ctx, `
		SELECT consumer_group, redrives, last_failed_at, attempts, error, id, status, headers, topic_id, partition, "offset", message_id
		FROM troupe.dead_letters
		WHERE `+where+`
		ORDER BY last_failed_at`, args, func(row pgx.CollectableRow) (Sighting, bool, error) {
		s := Sighting{State: Dead}
		var unnamed string
		var headers []byte
		var topicID uuid.UUID
		var partition int32
		var offset int64
		err := row.Scan(&s.Group, &s.Redrive, &s.At, &s.Attempts, &s.Error, &s.Letter, &s.Status,
			&headers, (*[16]byte)(&topicID), &partition, &offset, &unnamed)
		m, _ := read(headers, topicID, partition, offset)
		m.unnamed = unnamed
		if s.Identity = m.identity(); strings.HasPrefix(unnamed, id+"~") {
			s.Identity = unnamed // on a retry topic the relay added a source, which is no part of it
		}
		return s, true, err
	})
}

// findHandled searches group by group with the primary key, since the index on the id alone contains only identities with a hash
// of the source.
func (d *Desk) findHandled(ctx context.Context, id string) ([]Sighting, bool, error) {
	return d.sightings(ctx, `
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
		pgx.NamedArgs{"id": inbox.ID(id)}, func(row pgx.CollectableRow) (Sighting, bool, error) {
			s := Sighting{State: Handled}
			return s, true, row.Scan(&s.Group, &s.Redrive, &s.At, &s.Identity)
		})
}

// recent selects identities that are UUIDv7. Participants store these by day in a ring of 32 tables. All other identities, and
// UUIDv7 of days that the ring does not hold, are in troupe.inbox. A message is known if its identity is in either.
const recent = "troupe.inbox_recent WHERE slot = @slot AND id = @uuid"

// recentArgs returns the arguments of recent. ok is false if the identity cannot be in these tables.
func recentArgs(identity string) (args pgx.NamedArgs, ok bool) {
	id, day, ok := inbox.Recent(identity)
	return pgx.NamedArgs{"slot": int16(day % inbox.Slots), "uuid": id}, ok
}

func (d *Desk) findRecent(ctx context.Context, id string) ([]Sighting, bool, error) {
	args, ok := recentArgs(id)
	if !ok {
		return nil, false, nil
	}
	const sql = "SELECT consumer_group, redrive, handled_at FROM " + recent
	return d.sightings(ctx, sql, args, func(row pgx.CollectableRow) (Sighting, bool, error) {
		s := Sighting{State: Handled, Identity: id}
		return s, true, row.Scan(&s.Group, &s.Redrive, &s.At)
	})
}

// findHeld searches for the id in the bytes of the headers, and then parses them.
func (d *Desk) findHeld(ctx context.Context, id string) ([]Sighting, bool, error) {
	return d.sightings(ctx, `
		SELECT consumer_group, topic, topic_id, partition, "offset", headers, attempts, next_try, coalesce(last_error, ''),
		       coalesce(last_failed_at, created_at), message_id
		FROM troupe.held
		WHERE position(@id::bytea IN headers) > 0 OR concat_ws('/', topic_id, partition, "offset") = @text OR message_id = @text
		ORDER BY position`, pgx.NamedArgs{"id": []byte(id), "text": strings.ToValidUTF8(strings.ReplaceAll(id, "\x00", ""), "")},
		func(row pgx.CollectableRow) (s Sighting, found bool, err error) {
			var p Place
			var unnamed string
			var topicID uuid.UUID
			var headers []byte
			s.State, s.Place = Held, &p
			err = row.Scan(&s.Group, &p.Topic, (*[16]byte)(&topicID), &p.Partition, &p.Offset, &headers, &s.Attempts, &s.NextTry,
				&s.Error, &s.At, &unnamed)
			m, _ := read(headers, topicID, p.Partition, p.Offset)
			m.unnamed = unnamed
			s.Identity, s.Redrive = m.identity(), deadletter.Redrives(m.Extra, s.Group)
			var place string
			if n := len(s.Identity) - 17; n > 0 && s.Identity[n] == '~' {
				place = s.Identity[:n] // its first place, also on a retry topic, where the relay gave it an id
			}
			return s, m.id() == id || place == id, err
		})
}
