package deadletter

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/pgtext"
)

// Headers of a redriven message.
const (
	// HeaderRedrive holds how often the message was redriven, in decimal text. A redriven message is no duplicate of the
	// message before its redrive.
	HeaderRedrive = "__troupe.redrive"
	// HeaderRedriveGroup names the consumer group that a redriven event is for. Other groups that read its topic skip it: they
	// have handled it, or will handle it, at its first offset.
	HeaderRedriveGroup = "__troupe.redrive.group"
	// HeaderRedriveEdit identifies the edited payload of a redriven message. The handler gets a message with it under another
	// idempotency key, since it is another request to the services that the handler calls. Its answer has the key of the original.
	HeaderRedriveEdit = "__troupe.redrive.edit"
	// HeaderRedriveIdentity holds the identity by which the inbox recognises the original message, if the redriven message would have
	// another one: a redrive adds ce_id to a message without it, and the relay adds ce_source.
	HeaderRedriveIdentity = "__troupe.redrive.identity"
)

// GenerationShift is the first bit of a redrive count that is the generation of a rebuild: a message that a rebuild handles is no
// duplicate of the message before, and its dead letter is redriven with a count of its own.
const GenerationShift = 16

// EditOf returns the value of HeaderRedriveEdit for an edited payload. It depends on the payload only, so that two redrives of one
// edit are one request.
func EditOf(payload []byte) string {
	hash := sha256.Sum256(payload)
	return hex.EncodeToString(hash[:8])
}

// RequestKey returns the idempotency key of a message with these headers for the services that its handler calls: key, followed by
// the value of HeaderRedriveEdit if the message was edited. A service may have answered key to the message before the edit, and would
// repeat that answer. A value that EditOf has not written is ignored.
func RequestKey(key string, headers []envelope.Header) string {
	if key == "" {
		return ""
	}
	for _, h := range headers {
		if h.Key == HeaderRedriveEdit && len(h.Value) == 16 && len(bytes.Trim(h.Value, "0123456789abcdef")) == 0 {
			return key + "/" + string(h.Value)
		}
	}
	return key
}

// RedriveIdentity returns the value of HeaderRedriveIdentity; "" if there is none, or Postgres cannot store it.
func RedriveIdentity(headers []envelope.Header) string {
	for _, h := range headers {
		if h.Key == HeaderRedriveIdentity && len(h.Value) <= 512 && pgtext.Fits(h.Value) {
			return string(h.Value)
		}
	}
	return ""
}

// Redrives returns how often the message with these headers was redriven for group; a redrive for another group does not count.
func Redrives(headers []envelope.Header, group string) (n int) {
	ours := true
	for _, h := range headers {
		switch h.Key {
		case HeaderRedrive:
			if parsed, err := strconv.ParseUint(string(h.Value), 10, 31); err == nil {
				n = int(parsed)
			}
		case HeaderRedriveGroup:
			ours = string(h.Value) == group
		}
	}
	if !ours {
		return 0
	}
	return n
}
