// Package inbox defines the texts and slots by which the inbox's tables identify a message: for a participant that handles it,
// and for an operator who searches for it.
package inbox

import (
	"strings"

	"github.com/google/uuid"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/pgtext"
)

const (
	// Slots is the number of tables in the ring of troupe.inbox_recent.
	Slots = 32
	dayMs = 24 * 60 * 60 * 1000
)

// Identity returns m's identity in the form of troupe.inbox.message_id.
func Identity(m envelope.Message) string {
	return pgtext.Indexable(m.ID) + strings.TrimPrefix(m.Identity(), m.ID)
}

// ID returns an id in the form of text columns. It is also the identity that versions before the one with sources wrote, and the
// identity of a message without ce_id.
func ID(id string) string { return pgtext.Indexable(id) }

// Recent returns the UUID and the day since 1970 of an identity that belongs to troupe.inbox_recent, in the slot of that day
// modulo Slots. ok is true for a UUIDv7 in the form in which Postgres prints it.
func Recent(identity string) (id uuid.UUID, day int, ok bool) {
	id, err := uuid.Parse(identity)
	canonical := len(identity) == 36 && !strings.ContainsAny(identity, "ABCDEF") // equal to id.String()
	if err != nil || id.Version() != 7 || !canonical {
		return id, 0, false
	}
	ms := int64(id[0])<<40 | int64(id[1])<<32 | int64(id[2])<<24 | int64(id[3])<<16 | int64(id[4])<<8 | int64(id[5])
	return id, int(ms / dayMs), true
}
