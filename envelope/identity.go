package envelope

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/google/uuid"
)

// Identity returns a text that distinguishes m from every other message. CloudEvents makes an id unique within its source
// only: two producers may both count 1, 2, 3. So the identity is the ID, "~" and 16 hex digits of a hash of Source and ID.
//
// A UUID of version 1, 4, 6 or 7 is its own identity. It is unique without its source, and stays the same if a forwarder
// writes another source. UUIDs of versions 3, 5 and 8 are made from a name, which two sources may share. A message without an
// ID has no identity.
func (m Message) Identity() string {
	if m.ID == "" || isUnique(m.ID) {
		return m.ID
	}
	h := sha256.New()
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(m.Source)))
	_, _ = h.Write(size[:]) // a hash never fails
	_, _ = h.Write([]byte(m.Source))
	_, _ = h.Write([]byte(m.ID))
	return m.ID + "~" + hex.EncodeToString(h.Sum(nil)[:8])
}

// isUnique reports whether id is a UUID made from a clock or from random bits. Its letters may be upper or lower case.
func isUnique(id string) bool {
	if len(id) != 36 {
		return false
	}
	u, err := uuid.Parse(id)
	if err != nil {
		return false
	}
	switch u.Version() {
	case 1, 4, 6, 7:
		return true
	}
	return false
}
