package repair

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/admin"
)

// recordLetters inserts the audit rows of actions on dead letters.
const recordLetters = `
INSERT INTO troupe.repairs (actor, action, reason, dead_letter_id, consumer_group, topic, partition, "offset", message_id,
                            payload_before, payload_after)
SELECT @actor, @action, @reason, id, consumer_group, topic, partition, "offset", message_id, @before::bytea, @after::bytea
FROM troupe.dead_letters
WHERE id = ANY (@ids)`

// recordArgs returns arguments of recordLetters and recordHeld.
func recordArgs(action string, by admin.Actor) pgx.NamedArgs {
	return pgx.NamedArgs{"actor": by.Name, "action": action, "reason": by.Reason, "before": []byte(nil), "after": []byte(nil)}
}

// notOpen returns an error with the status of a dead letter, the actor and the time.
func notOpen(ctx context.Context, tx pgx.Tx, id uuid.UUID, status Status) error {
	var actor string
	var at time.Time
	err := tx.QueryRow(ctx, `
		SELECT left(actor, 200), at
		FROM troupe.repairs
		WHERE dead_letter_id = $1 AND action IN ('redrive', 'discard')
		ORDER BY position DESC
		LIMIT 1`, id).Scan(&actor, &at)
	if err != nil {
		return fmt.Errorf("%w: it is %s", ErrNotOpen, status)
	}
	return fmt.Errorf("%w: %s by %s at %s", ErrNotOpen, status, actor, at.UTC().Format(time.RFC3339))
}
