package repair

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/internal/pgtext"
)

// A HeldKey is a key that waits, described by the message that it waits for. Its JSON is the output of troupe held list.
type HeldKey struct {
	Place       Place      `json:"place"`
	Group       string     `json:"group"`
	Key         Key        `json:"key"` // null: the message has no key, and blocks no other message
	MessageID   string     `json:"message_id"`
	Type        string     `json:"type"`
	Attempts    int        `json:"attempts"` // 0: it was not tried yet, or its tries count no attempt: no handler for its type, a rate limit
	MaxAttempts int        `json:"max_attempts"`
	NextTry     *time.Time `json:"next_try"`
	Class       string     `json:"class"`
	Error       string     `json:"error"`
	FirstFailed *time.Time `json:"first_failed"`
	LastFailed  *time.Time `json:"last_failed"`
	Behind      int        `json:"behind"` // number of messages of the key that wait for this one

	row heldRow
}

// heldRow holds the other columns of the row.
type heldRow struct {
	position    int64
	topicID     uuid.UUID
	holdKey     []byte
	headers     []byte
	payload     []byte
	messageTime time.Time
	message     message
	redrive     int // by the headers
	stored      int // by the row: of a message that a rebuild handles it has the rebuild's generation

	// These fields determine how its participant would write its dead letter.
	handler, hop, source string
	letterHeaders        int
}

// A Place is the position of a message in Kafka, such as "order.payment.commands/3/1024". Local work has partition -1, and as its
// offset its position in troupe.local_work.
type Place struct {
	Topic     string
	Partition int32
	Offset    int64
}

// ParsePlace parses the format of Place.String.
func ParsePlace(text string) (Place, error) {
	parts := strings.Split(text, "/")
	if len(parts) == 3 && parts[0] != "" {
		partition, err := strconv.ParseInt(parts[1], 10, 32)
		offset, offsetErr := strconv.ParseInt(parts[2], 10, 64)
		if err == nil && offsetErr == nil && partition >= localPartition && offset >= 0 {
			return Place{parts[0], int32(partition), offset}, nil
		}
	}
	return Place{}, fmt.Errorf("place %q: want topic/partition/offset, as troupe held list and troupe batch list print it", text)
}

// String returns topic/partition/offset.
func (p Place) String() string { return fmt.Sprintf("%s/%d/%d", p.Topic, p.Partition, p.Offset) }

// MarshalText returns String as bytes.
func (p Place) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText parses the format of String.
func (p *Place) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePlace(string(text))
	return err
}

// A HeldFilter selects held keys that match all fields that are set. The zero HeldFilter selects all.
type HeldFilter struct {
	Places []Place
	Group  string
	Topics []string
	Class  string // of the last failure
	Key    Key    // nil: any
}

// IsZero reports whether the filter selects every held key.
func (f HeldFilter) IsZero() bool {
	return len(f.Places)+len(f.Topics) == 0 && f.Key == nil && f.Group+f.Class == ""
}

// Validate returns an error if a field has an invalid value. Every method with a HeldFilter applies it first.
func (f HeldFilter) Validate() error {
	_, err := f.conditions()
	return err
}

const (
	// heldColumns are the columns that scanHeld reads.
	heldColumns = `
SELECT h.position, h.topic, h.partition, h."offset", h.consumer_group, h.key, h.attempts, h.max_attempts, h.next_try,
       coalesce(h.error_class, ''), coalesce(h.last_error, ''), h.first_failed_at, h.last_failed_at,
       h.topic_id, h.hold_key, h.headers, h.message_time, behind.n,
       coalesce(h.handler, ''), coalesce(h.hop, ''), coalesce(h.source, ''), coalesce(h.letter_headers, 0), h.message_id, h.redrive`
	heldBehind = `
CROSS JOIN LATERAL (
  SELECT count(*) AS n
  FROM troupe.held b
  WHERE (b.consumer_group, b.topic, b.partition, b.hold_key) = (h.consumer_group, h.topic, h.partition, h.hold_key)
    AND b.position > h.position) AS behind`
	// heldFirst is a subquery and not an anti-join: without statistics the planner takes one that compares each row of a key with each
	// other.
	heldFirst = `
WHERE h.position = (
  SELECT e.position
  FROM troupe.held e
  WHERE (e.consumer_group, e.topic, e.partition, e.hold_key) = (h.consumer_group, h.topic, h.partition, h.hold_key)
  ORDER BY e.consumer_group, e.topic, e.partition, e.hold_key, e.position
  LIMIT 1)
  AND `
)

// A source is a table whose messages wait for their next try.
type source struct {
	columns, from, behind string // the columns that scan reads, the rows as h, and the number of messages behind each
	first                 string // condition for the first row of each key
	due                   string // condition for rows that wait for a time
	order                 string
	after                 string // condition for rows behind the row with position @after of group @after_group
	makeDue               string
	scan                  pgx.RowToFunc[HeldKey]
}

var heldMessages = source{
	columns: heldColumns, from: "\nFROM troupe.held h", behind: heldBehind, first: heldFirst,
	due: "h.next_try IS NOT NULL", order: "\nORDER BY h.position", after: "h.position > @after",
	makeDue: "UPDATE troupe.held SET next_try = clock_timestamp() WHERE " + thisHeld, scan: scanHeld,
}

// heads begins a statement on the first row of every key.
func (s source) heads() string { return s.columns + s.from + s.behind + s.first }

// page returns a statement for a page of first rows, with lock behind its limit. It cuts the page before it counts the messages behind
// each.
func (s source) page(where, lock string) string {
	return s.columns + "\nFROM (\nSELECT h.*" + s.from + s.first + where + s.order + "\nLIMIT @limit" + lock + ") AS h" + s.behind + s.order
}

func scanHeld(row pgx.CollectableRow) (k HeldKey, err error) {
	r := &k.row
	var unnamed string
	err = row.Scan(&r.position, &k.Place.Topic, &k.Place.Partition, &k.Place.Offset, &k.Group, (*[]byte)(&k.Key), &k.Attempts,
		&k.MaxAttempts, &k.NextTry, &k.Class, &k.Error, &k.FirstFailed, &k.LastFailed,
		(*[16]byte)(&r.topicID), &r.holdKey, &r.headers, &r.messageTime, &k.Behind,
		&r.handler, &r.hop, &r.source, &r.letterHeaders, &unnamed, &r.stored)
	if err != nil {
		return k, err
	}
	r.message, _ = read(r.headers, r.topicID, k.Place.Partition, k.Place.Offset) // headers that cannot be read give no attributes
	r.message.unnamed = unnamed
	r.redrive = deadletter.Redrives(r.message.Extra, k.Group)
	k.MessageID, k.Type = r.message.id(), r.message.Type
	return k, nil
}

func (f HeldFilter) conditions() (*conditions, error) {
	c := &conditions{args: pgx.NamedArgs{}}
	if len(f.Places) > maxIDs {
		return nil, fmt.Errorf("%d places: at most %d at once", len(f.Places), maxIDs)
	}
	if len(f.Places) > 0 {
		var topics []string
		var partitions []int32
		var offsets []int64
		for _, p := range f.Places {
			topics, partitions, offsets = append(topics, p.Topic), append(partitions, p.Partition), append(offsets, p.Offset)
		}
		c.add(`(h.topic, h.partition, h."offset") IN (
    SELECT * FROM unnest(@topics::text[], @partitions::int[], @offsets::bigint[]))`, "topics", topics)
		c.args["partitions"], c.args["offsets"] = partitions, offsets
	}
	if len(f.Topics) > 0 {
		c.add("h.topic = ANY (@of_topics)", "of_topics", f.Topics)
	}
	if f.Group != "" {
		c.add("h.consumer_group = @group", "group", f.Group)
	}
	if f.Class != "" {
		if err := (Filter{Class: f.Class}).Validate(); err != nil {
			return nil, err
		}
		c.add("h.error_class = @class", "class", f.Class)
	}
	if f.Key != nil {
		c.add("h.key = @key", "key", []byte(f.Key))
	}
	return c, nil
}

// Held returns a page of held keys, in the order in which their messages were held, and after them the keys of local work whose
// first entry waits for its next try, in the order in which these were written. next is the cursor of the next page, "" after the
// last.
func (d *Desk) Held(ctx context.Context, f HeldFilter, p Page) (keys []HeldKey, next string, err error) {
	limit, err := p.limit()
	if err == nil {
		keys, next, err = d.heldFrom(ctx, f, p.After, limit)
	}
	if err != nil {
		return nil, "", fmt.Errorf("list held keys: %w", err)
	}
	return keys, next, nil
}

func (d *Desk) heldFrom(ctx context.Context, f HeldFilter, after string, limit int) (keys []HeldKey, next string, err error) {
	if after, ok := strings.CutPrefix(after, localCursor); ok {
		return d.localFrom(ctx, f, after, limit)
	}
	where, err := f.conditions()
	if err != nil {
		return nil, "", err
	}
	if after != "" {
		position, _, err := admin.ReadNumberCursor(after)
		if err != nil {
			return nil, "", err
		}
		where.add(heldMessages.after, "after", position)
	}
	where.args["limit"] = limit + 1
	keys, more, err := page(ctx, d, heldMessages.page(where.String(), ""), where.args, limit, scanHeld)
	if err != nil {
		return nil, "", err
	}
	if more {
		return keys, admin.NumberCursor(keys[len(keys)-1].row.position, ""), nil
	}
	local, next, err := d.localFrom(ctx, f, "", limit-len(keys))
	return append(keys, local...), next, err
}

// CountHeld counts the held keys, and the keys of local work whose first entry waits for its next try, up to limit, which must be
// above 0. It reads the rows of that many keys.
func (d *Desk) CountHeld(ctx context.Context, limit int) (n int, err error) {
	err = d.pool.QueryRow(ctx, `
		SELECT least(count(*), @limit)
		FROM (
		  (SELECT DISTINCT consumer_group, topic, partition, hold_key
		   FROM troupe.held
		   LIMIT @limit)
		  UNION ALL
		  (SELECT DISTINCT consumer_group, '', -1, hold_key
		   FROM troupe.local_work
		   WHERE next_try IS NOT NULL
		   LIMIT @limit)) AS keys`, pgx.NamedArgs{"limit": limit}).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count held keys: %w", err)
	}
	return n, nil
}

// channel returns the channel on which the participant listens, and the payload that concerns it.
func (k *HeldKey) channel() (channel, payload string) {
	if k.local() {
		return outboxrow.Channel, k.Place.Topic
	}
	return heldChannel, k.Group
}

// thisHeld selects one row. Topic id, partition and offset let it use an index; they alone are not unique after a log was
// truncated.
const thisHeld = `consumer_group = @group AND topic_id = @topic_id AND partition = @partition AND "offset" = @offset
  AND position = @position`

func (k *HeldKey) identity() pgx.NamedArgs {
	return pgx.NamedArgs{
		"group": k.Group, "topic_id": k.row.topicID, "partition": k.Place.Partition, "offset": k.Place.Offset,
		"position": k.row.position,
	}
}

const recordHeld = `
INSERT INTO troupe.repairs (actor, action, reason, dead_letter_id, consumer_group, topic, partition, "offset", message_id)
VALUES (@actor, @action, @reason, @dead_letter, @group, @topic, @partition, @offset, @message_id)`

func (k *HeldKey) recordArgs(action string, by admin.Actor, deadLetter *uuid.UUID) pgx.NamedArgs {
	args := recordArgs(action, by)
	args["dead_letter"], args["group"], args["topic"] = deadLetter, k.Group, k.Place.Topic
	args["partition"], args["offset"], args["message_id"] = k.Place.Partition, k.Place.Offset, pgtext.Indexable(k.MessageID)
	return args
}

// lockHeld waits for a running attempt, and returns the message if it is still the first of its key. If the topic was deleted and
// created again, or its log was truncated, several messages may have the place: it returns the one that was held first.
func lockHeld(ctx context.Context, tx pgx.Tx, p Place, group string) (*HeldKey, error) {
	f := HeldFilter{Places: []Place{p}, Group: group}
	where, err := f.conditions()
	if err != nil {
		return nil, err
	}
	// Lock first: only then is it certain which row is the first of its key.
	rows, err := tx.Query(ctx, `
		SELECT h.consumer_group, h.position
		FROM troupe.held h
		WHERE `+where.String()+`
		ORDER BY h.position
		FOR UPDATE`, where.args)
	if err != nil {
		return nil, err
	}
	type row struct {
		Group    string
		Position int64
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, fmt.Errorf("%w: it has taken effect or became a dead letter (troupe inbox find says which), or never was held "+
			"in this database", ErrGone)
	}
	for _, other := range found[1:] {
		if other.Group != found[0].Group {
			return nil, fmt.Errorf("more than one group holds it (%s, %s): name the group", found[0].Group, other.Group)
		}
	}
	rows, err = tx.Query(ctx, heldMessages.heads()+where.String()+"\nORDER BY h.position\nLIMIT 1", where.args)
	if err != nil {
		return nil, err
	}
	k, err := pgx.CollectExactlyOneRow(rows, scanHeld)
	if errors.Is(err, pgx.ErrNoRows) {
		var head Place
		err := tx.QueryRow(ctx, `
			SELECT e.topic, e.partition, e."offset"
			FROM troupe.held h
			JOIN troupe.held e USING (consumer_group, topic, partition, hold_key)
			WHERE h.position = $1
			ORDER BY e.position
			LIMIT 1`, found[0].Position).Scan(&head.Topic, &head.Partition, &head.Offset)
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w: it waits for %s", ErrBehind, head)
	}
	return &k, err
}
