package repair

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/inbox"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// ReleaseConfig configures a Release. By, with a Reason, is required.
type ReleaseConfig struct {
	By admin.Actor
	// Group is required if more than one group of this database holds the message.
	Group string
	// Hop is the hop of the participant, whose topics get the copy and the event. Default: the hop that the participant stored
	// with the message; for a message that an earlier version held, the hop that the group is named after.
	Hop topics.Hop
}

// A ReleaseResult describes the result of a Release.
type ReleaseResult struct {
	DeadLetter uuid.UUID `json:"dead_letter"` // uuid.Nil: the message had taken effect before, and was only still held
	Behind     int       `json:"behind"`      // number of messages of the key that continue
}

// Release gives up a held message. It becomes a dead letter now, as it would when its attempts are used up, with its copy for the
// hop's dlq topic and its exhausted event; and its key continues with the next message. Release waits for a running attempt.
//
// The error wraps ErrGone, ErrBehind or admin.ErrBusy in these cases; then nothing has happened.
func (d *Desk) Release(ctx context.Context, p Place, cfg ReleaseConfig) (ReleaseResult, error) {
	var r ReleaseResult
	err := cfg.By.CheckReasoned()
	if err == nil {
		err = d.act(ctx, func(tx pgx.Tx) (err error) {
			r, err = release(ctx, tx, p, cfg)
			return err
		})
	}
	if err != nil {
		return ReleaseResult{}, fmt.Errorf("release %s: %w", p, err)
	}
	return r, nil
}

// claimInbox inserts the identity like sql/insert_other.sql of the participant: a UUIDv7 of a day in the ring is inserted there
// too, since a member may insert it there at the same time for another delivery of the message. The two then conflict, and the
// later one sees the earlier. It also recognises the identity without its source, as earlier versions stored it.
const claimInbox = `
WITH day AS MATERIALIZED (
  SELECT slot
  FROM troupe.inbox_slots
  WHERE slot = @slot AND day = @day
    AND EXISTS (SELECT FROM troupe.inbox_groups WHERE consumer_group = @group AND days > 0)
), recent AS (
  INSERT INTO troupe.inbox_recent (slot, id, consumer_group, redrive)
  SELECT slot, @uuid::uuid, @group, @redrive
  FROM day
  ON CONFLICT DO NOTHING
  RETURNING id
)
INSERT INTO troupe.inbox (consumer_group, message_id, redrive)
SELECT @group::text, @identity::text, @redrive::integer
WHERE (NOT EXISTS (SELECT FROM day) OR EXISTS (SELECT FROM recent))
  AND NOT EXISTS (
    SELECT FROM troupe.inbox_recent
    WHERE slot = @slot AND id = @uuid AND consumer_group = @group AND redrive = @redrive)
  AND (@bare::text = @identity
    OR NOT EXISTS (SELECT FROM troupe.inbox WHERE consumer_group = @group AND message_id = @bare AND redrive = @redrive))
ON CONFLICT DO NOTHING`

func release(ctx context.Context, tx pgx.Tx, p Place, cfg ReleaseConfig) (r ReleaseResult, err error) {
	lock := lockHeld
	if p.Partition == localPartition {
		lock = lockLocal
	}
	k, err := lock(ctx, tx, p, cfg.Group)
	if err != nil {
		return r, err
	}
	w, err := k.writer(cfg.Hop)
	if err != nil {
		return r, err
	}
	r.Behind = k.Behind
	first, err := k.claimHeld(ctx, tx)
	if err != nil {
		return r, err
	}
	var deadLetter *uuid.UUID
	if first {
		id := uuid.Must(uuid.NewV7())
		if err := k.readPayload(ctx, tx); err != nil {
			return r, err
		}
		written, err := w.Write(ctx, tx, k.letter(id))
		if err != nil {
			return r, err
		}
		if written {
			r.DeadLetter, deadLetter = id, &id
		}
	}
	if err := k.end(ctx, tx, first); err != nil {
		return r, err
	}
	_, err = tx.Exec(ctx, recordHeld, k.recordArgs(actionRelease, cfg.By, deadLetter))
	return r, err
}

// readPayload reads the payload of a locked message.
func (k *HeldKey) readPayload(ctx context.Context, tx pgx.Tx) error {
	from := "troupe.held WHERE " + thisHeld
	if k.local() {
		from = "troupe.local_work WHERE " + thisLocal
	}
	return tx.QueryRow(ctx, "SELECT payload FROM "+from, k.identity()).Scan(&k.row.payload)
}

// end removes the message from the ones that wait, and notifies its participant. failed: it is a dead letter.
func (k *HeldKey) end(ctx context.Context, tx pgx.Tx, failed bool) (err error) {
	if k.local() {
		err = k.endLocal(ctx, tx, failed)
	} else {
		_, err = tx.Exec(ctx, "DELETE FROM troupe.held WHERE "+thisHeld, k.identity())
	}
	if err != nil {
		return err
	}
	channel, payload := k.channel()
	_, err = tx.Exec(ctx, "SELECT pg_notify($1, $2)", channel, payload)
	return err
}

// claimHeld is claim for a message that a rebuild may handle again: then the identity and the dead letter are the rebuild's. Without emit
// nothing is sent of that dead letter, nor of the one of a message that was redriven of a rebuild.
func (k *HeldKey) claimHeld(ctx context.Context, tx pgx.Tx) (first bool, err error) {
	generation := k.row.stored >> deadletter.GenerationShift
	switch {
	case k.local() || generation == 0:
		return k.claim(ctx, tx)
	case generation == k.row.redrive>>deadletter.GenerationShift: // it was redriven
		return k.claimRebuilt(ctx, tx, generation)
	}
	const find = `
SELECT cancelled_at IS NOT NULL FROM troupe.rebuilds WHERE consumer_group = @group AND generation = @generation`
	var cancelled bool
	if err := tx.QueryRow(ctx, find, pgx.NamedArgs{"group": k.Group, "generation": generation}).Scan(&cancelled); err != nil {
		return false, err
	}
	if cancelled { // it was handled before, although the inbox may have forgotten that
		return false, nil
	}
	k.row.redrive = k.row.stored
	return k.claimRebuilt(ctx, tx, generation)
}

// claimRebuilt is claim for a message of a rebuild: without emit the transaction's writes to the outbox are discarded.
func (k *HeldKey) claimRebuilt(ctx context.Context, tx pgx.Tx, generation int) (first bool, err error) {
	const withhold = `
SELECT set_config('troupe.rebuild', 'on', true)
WHERE NOT EXISTS (SELECT FROM troupe.rebuilds AS r WHERE r.consumer_group = @group AND r.generation = @generation AND r.emit)`
	if _, err := tx.Exec(ctx, withhold, pgx.NamedArgs{"group": k.Group, "generation": generation}); err != nil {
		return false, err
	}
	return k.claim(ctx, tx)
}

// claim inserts the message's identity into the inbox, so that it is not handled when it is delivered again. It returns false if
// the message has taken effect before. It waits for a transaction that handles another delivery of the message.
func (k *HeldKey) claim(ctx context.Context, tx pgx.Tx) (first bool, err error) {
	identity := k.row.message.identity()
	args := pgx.NamedArgs{
		"group": k.Group, "identity": identity, "bare": inbox.ID(k.MessageID), "redrive": k.row.redrive,
		"slot": (*int16)(nil), "day": (*int32)(nil), "uuid": (*uuid.UUID)(nil),
	}
	if id, day, ok := inbox.Recent(identity); ok {
		args["slot"], args["day"], args["uuid"] = int16(day%inbox.Slots), int32(day), id
	}
	tag, err := tx.Exec(ctx, claimInbox, args)
	return tag.RowsAffected() == 1, err
}

// writer returns the writer of the dead letter, configured like the participant that counted the last attempt. For a row of a
// version that did not store this configuration it writes no headers of other frameworks, and uses the hop that the group is
// named after.
func (k *HeldKey) writer(hop topics.Hop) (w deadletter.Writer, err error) {
	name := k.row.hop
	if name == "" {
		name = k.Group
	}
	if hop.IsZero() {
		if hop, err = topics.ParseHop(name); err != nil {
			return w, fmt.Errorf("group %q does not say which hop it is of: name the hop", k.Group)
		}
	}
	source := k.row.source
	if source == "" {
		source = hop.Name()
	}
	out, err := outbox.New(outbox.Config{Source: source})
	return deadletter.Writer{
		Group: k.Group, Hop: hop, Outbox: out, Profile: deadletter.Profile(k.row.letterHeaders),
		Exhausted: func(e deadletter.Exhausted) any { return participant.Exhausted(e) },
	}, err
}

// letter returns the message as a dead letter after its last attempt.
func (k *HeldKey) letter(id uuid.UUID) deadletter.Letter {
	m := k.row.message.Message
	m.Topic, m.ID, m.Key, m.Payload = deadletter.FirstTopic(k.Place.Topic, k.row.message.headers), k.MessageID, k.Key, k.row.payload
	m.Extra = deadletter.WithoutRetry(m.Extra)
	l := deadletter.Letter{
		ID: id.String(), Message: m, Headers: deadletter.WithoutRetry(k.row.message.headers), Stored: k.row.message.stored, TopicID: k.row.topicID, Partition: k.Place.Partition,
		Offset: k.Place.Offset, At: k.row.messageTime, Redrive: k.row.redrive, Handler: k.row.handler,
		Class: k.Class, Error: k.Error, Attempts: k.Attempts, FirstFailed: k.FirstFailed, LastFailed: k.LastFailed,
	}
	if l.Error == "" {
		l.Class, l.Error = string(participant.Transient), "released before its first try"
	}
	if l.Handler == "" {
		l.Handler = k.Group + "/" + k.Type
	}
	return l
}
