package repair

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/deadletter"
)

// maxEditBytes limits the JSON of an edit.
const maxEditBytes = 8 << 20

// Edit sets the payload that a redrive of the dead letter will send. text is JSON. For an Avro message it is encoded with the
// schema of the original payload, so that every consumer that could read the message can read the edited one. The original
// message is kept, and a later Edit starts from it again. by needs a Reason.
//
// The error wraps ErrPayload if the schema does not allow text, and names the path of the mistake; or ErrNotFound; or ErrNotOpen.
// Then nothing has changed.
func (d *Desk) Edit(ctx context.Context, id uuid.UUID, text []byte, by admin.Actor) error {
	if err := d.edit(ctx, id, text, by); err != nil {
		return fmt.Errorf("edit dead letter %s: %w", id, err)
	}
	return nil
}

func (d *Desk) edit(ctx context.Context, id uuid.UUID, text []byte, by admin.Actor) error {
	if err := by.CheckReasoned(); err != nil {
		return err
	}
	if len(text) > maxEditBytes {
		return fmt.Errorf("%w: %d bytes of JSON: at most %d", ErrPayload, len(text), maxEditBytes)
	}
	// The new payload depends only on values that never change, so query the registry outside the transaction.
	var l letter
	if err := d.pool.QueryRow(ctx, selectLetter+" WHERE id = @id", pgx.NamedArgs{"id": id}).Scan(l.fields()...); err != nil {
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("%w in this database", ErrNotFound)
		}
		return explain(err)
	}
	m, err := read(l.headers, l.topicID, l.partition, l.offset)
	if err != nil {
		return fmt.Errorf("%w: no participant can read its headers, whatever the payload: discard it (%w)", ErrUnsendable, err)
	}
	after, err := d.encode(ctx, m.ContentType, m.Type, l.payload, text)
	if err != nil {
		return err
	}
	if n := deadletter.Size(l.key, after, m.original()); n > deadletter.MaxBytes {
		return fmt.Errorf("%w: key, headers and payload have %d bytes: at most %d can be sent", ErrPayload, n, deadletter.MaxBytes)
	}
	return d.act(ctx, func(tx pgx.Tx) error {
		var status Status
		var before []byte
		err := tx.QueryRow(ctx, `
			SELECT status, coalesce(edited_payload, payload)
			FROM troupe.dead_letters
			WHERE id = $1
			FOR UPDATE`, id).Scan(&status, &before)
		if err != nil {
			return err
		}
		if status != Open {
			return notOpen(ctx, tx, id, status)
		}
		if _, err := tx.Exec(ctx, "UPDATE troupe.dead_letters SET edited_payload = $2 WHERE id = $1", id, after); err != nil {
			return err
		}
		args := recordArgs(actionEdit, by)
		args["ids"], args["before"], args["after"] = []uuid.UUID{id}, before, after
		_, err = tx.Exec(ctx, recordLetters, args)
		return err
	})
}
