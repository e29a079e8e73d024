package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/topics"
)

// Local work that waits for its next try is shown as held keys are. Its place has localPartition, and the entry's position as its
// offset.

const (
	localPartition = outboxrow.LocalPartition
	// localCursor is the prefix of the cursor of a page that ended in local work.
	localCursor = "local:"

	// thisLocal selects one row.
	thisLocal = "consumer_group = @group AND position = @position"
)

// local reports whether the message is local work.
func (k *HeldKey) local() bool { return k.Place.Partition == localPartition }

var localWork = source{
	columns: `
SELECT h.position, h.id, h.topic, h.text_key, h.key_bytes, h.type, h.headers, h.raw_headers,
       CASE WHEN h.payload IS NOT NULL THEN ''::bytea END, -- readPayload reads it: it has megabytes, and decides here only whether there is a content type
       h.created_at, h.consumer_group, h.attempts, coalesce(h.max_attempts, 0), h.next_try,
       coalesce(h.error_class, ''), coalesce(h.last_error, ''), h.first_failed_at, h.last_failed_at, behind.n,
       coalesce(h.handler, ''), coalesce(h.hop, ''), coalesce(h.source, ''), coalesce(h.letter_headers, 0)`,
	from: `
FROM (
  SELECT w.position, w.position AS "offset", -1 AS partition, w.consumer_group, w.id, w.topic, w.key AS text_key, w.key_bytes,
         coalesce(w.key_bytes, convert_to(w.key, 'UTF8')) AS key, w.type, w.headers, w.raw_headers, w.payload, w.created_at, w.hold_key,
         w.status, w.attempts, w.max_attempts, w.next_try, w.error_class, w.last_error, w.first_failed_at, w.last_failed_at,
         w.handler, w.hop, w.source, w.letter_headers
  FROM troupe.local_work AS w
  WHERE w.ended_at IS NULL) AS h`,
	behind: `
CROSS JOIN LATERAL (
  SELECT count(*) AS n
  FROM troupe.local_work AS b
  WHERE b.consumer_group = h.consumer_group AND b.hold_key = h.hold_key AND b.position > h.position AND b.ended_at IS NULL) AS behind`,
	first: `
WHERE NOT EXISTS (
  SELECT
  FROM troupe.local_work AS e
  WHERE e.consumer_group = h.consumer_group AND e.hold_key = h.hold_key AND e.position < h.position AND e.ended_at IS NULL)
  AND `,
	due:     "h.status = 'pending' AND h.next_try IS NOT NULL",
	order:   "\nORDER BY h.position, h.consumer_group",
	after:   "(h.position, h.consumer_group) > (@after, @after_group)",
	makeDue: "UPDATE troupe.local_work SET next_try = clock_timestamp() WHERE " + thisLocal,
	scan:    scanLocal,
}

// scanLocal reads the row as its participant does.
func scanLocal(row pgx.CollectableRow) (k HeldKey, err error) {
	r := &k.row
	var o outboxrow.Row
	err = row.Scan(append(o.Fields(), &k.Group, &k.Attempts, &k.MaxAttempts, &k.NextTry, &k.Class, &k.Error, &k.FirstFailed, &k.LastFailed,
		&k.Behind, &r.handler, &r.hop, &r.source, &r.letterHeaders)...)
	if err != nil {
		return k, err
	}
	k.Place, k.Key = Place{o.Topic, localPartition, o.Position}, o.OrderKey()
	r.position, r.topicID, r.messageTime = o.Position, outboxrow.LocalTopicID(o.Topic), o.CreatedAt
	m, err := o.Message(outboxrow.Defaults{Source: cmp.Or(r.source, hopName(k.Group))})
	if err != nil { // it has no other attributes
		m.ID, m.Type = o.ID.String(), o.Type
	}
	r.message = message{Message: m, headers: m.Headers(), place: fmt.Sprintf("%s/%d/%d", r.topicID, localPartition, o.Position)}
	r.redrive = deadletter.Redrives(m.Extra, k.Group)
	k.MessageID, k.Type = r.message.id(), m.Type
	return k, nil
}

// localFrom returns a page of the keys of local work whose first entry waits for its next try. limit may be 0.
func (d *Desk) localFrom(ctx context.Context, f HeldFilter, after string, limit int) (keys []HeldKey, next string, err error) {
	where, err := f.conditions()
	if err != nil {
		return nil, "", err
	}
	if after != "" {
		position, group, err := admin.ReadNumberCursor(after)
		if err != nil {
			return nil, "", err
		}
		where.add(localWork.after, "after", position)
		where.args["after_group"] = group
	}
	where.all = append(where.all, localWork.due)
	where.args["limit"] = limit + 1
	keys, more, err := page(ctx, d, localWork.page(where.String(), ""), where.args, limit, scanLocal)
	switch {
	case err != nil:
		return nil, "", err
	case !more:
		return keys, "", nil
	case limit == 0:
		return nil, localCursor + after, nil
	}
	last := keys[len(keys)-1]
	return keys, localCursor + admin.NumberCursor(last.row.position, last.Group), nil
}

// findLocal finds local work that has not ended: it waits for its next try, or behind another entry of its key.
func (d *Desk) findLocal(ctx context.Context, id string) ([]Sighting, bool, error) {
	args := pgx.NamedArgs{"id": strings.ToValidUTF8(strings.ReplaceAll(id, "\x00", ""), ""), "bytes": []byte(id)}
	return d.sightings(ctx, localWork.columns+localWork.from+localWork.behind+`
		WHERE (h.id::text = @id OR position(@bytes::bytea IN h.raw_headers) > 0)
		  AND EXISTS (
		    SELECT
		    FROM troupe.local_work AS e
		    WHERE e.consumer_group = h.consumer_group AND e.hold_key = h.hold_key AND e.position <= h.position AND e.first_failed_at IS NOT NULL
		      AND e.ended_at IS NULL)`+localWork.order, args, func(row pgx.CollectableRow) (s Sighting, found bool, err error) {
		k, err := scanLocal(row)
		if err != nil || k.MessageID != id {
			return s, false, err
		}
		place := k.Place // a pointer into k would keep the headers in memory
		s = Sighting{
			Group: k.Group, Identity: k.row.message.identity(), Redrive: k.row.redrive, State: Held, At: k.row.messageTime,
			Place: &place, NextTry: k.NextTry, Attempts: k.Attempts, Error: k.Error,
		}
		if k.LastFailed != nil {
			s.At = *k.LastFailed
		}
		return s, true, nil
	})
}

// lockLocal waits for a running attempt, and returns the entry if it is still the first of its key.
func lockLocal(ctx context.Context, tx pgx.Tx, p Place, group string) (*HeldKey, error) {
	rows, err := tx.Query(ctx, `
		SELECT consumer_group
		FROM troupe.local_work
		WHERE position = @position AND topic = @topic AND (@group = '' OR consumer_group = @group) AND ended_at IS NULL
		ORDER BY consumer_group
		FOR UPDATE`, pgx.NamedArgs{"position": p.Offset, "topic": p.Topic, "group": group})
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, fmt.Errorf("%w: it has taken effect or became a dead letter (troupe inbox find says which), or never was local work "+
			"in this database", ErrGone)
	case len(found) > 1:
		return nil, fmt.Errorf("more than one group has it as local work (%s, %s): name the group", found[0], found[1])
	}
	args := pgx.NamedArgs{"group": found[0], "position": p.Offset}
	rows, err = tx.Query(ctx, localWork.heads()+"h.consumer_group = @group AND h.position = @position", args)
	if err != nil {
		return nil, err
	}
	k, err := pgx.CollectExactlyOneRow(rows, scanLocal)
	if errors.Is(err, pgx.ErrNoRows) {
		head := Place{Topic: p.Topic, Partition: localPartition}
		err := tx.QueryRow(ctx, `
			SELECT e.topic, e.position
			FROM troupe.local_work AS w
			JOIN troupe.local_work AS e USING (consumer_group, hold_key)
			WHERE w.consumer_group = @group AND w.position = @position AND e.ended_at IS NULL
			ORDER BY e.position
			LIMIT 1`, args).Scan(&head.Topic, &head.Offset)
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w: it waits for %s", ErrBehind, head)
	}
	return &k, err
}

// endLocal ends the entry. A member that has claimed it and not begun finds it ended, and passes it over.
func (k *HeldKey) endLocal(ctx context.Context, tx pgx.Tx, failed bool) error {
	end := `
		UPDATE troupe.local_work
		SET status = 'done', attempts = 0, error_class = NULL, last_error = NULL, first_failed_at = NULL, last_failed_at = NULL,
		    unhandled_since = NULL, next_try = NULL, locked_at = NULL, locked_by = NULL, ended_at = clock_timestamp()
		WHERE ` + thisLocal
	if failed {
		end = `
		UPDATE troupe.local_work
		SET status = 'failed', attempts = greatest(attempts, 1), last_error = coalesce(last_error, 'released before its first try'),
		    unhandled_since = NULL, next_try = NULL, locked_at = NULL, locked_by = NULL, ended_at = clock_timestamp()
		WHERE ` + thisLocal
	}
	_, err := tx.Exec(ctx, end, k.identity())
	return err
}

// hopName returns the name that a participant of the group uses as its source by default; empty if the group has another name.
func hopName(group string) string {
	hop, err := topics.ParseHop(group)
	if err != nil {
		return ""
	}
	return hop.Name()
}
