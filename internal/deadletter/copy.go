package deadletter

import (
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/pgtext"
)

// Headers of the copy on the dlq topic, all of them text. The first six are defined by KIP-1191. Headers of these names that a
// message already has, from an earlier dead letter, are replaced.
const (
	HeaderErrorsTopic         = errorsPrefix + "topic"
	HeaderErrorsPartition     = errorsPrefix + "partition"
	HeaderErrorsOffset        = errorsPrefix + "offset"
	HeaderErrorsGroup         = errorsPrefix + "group"
	HeaderErrorsDeliveryCount = errorsPrefix + "delivery.count" // attempts
	HeaderErrorsMessage       = errorsPrefix + "message"        // the last error

	HeaderDeadLetterID = ownPrefix + "id" // troupe.dead_letters.id
	// HeaderMessageID holds the message's own ce_id, which is also the copy's ce_id if it is a UUID.
	HeaderMessageID   = ownPrefix + "message.id"
	HeaderClass       = ownPrefix + "class"
	HeaderHandler     = ownPrefix + "handler"
	HeaderFirstFailed = ownPrefix + "first.failed" // RFC 3339
	HeaderLastFailed  = ownPrefix + "last.failed"  // RFC 3339
	HeaderRedrives    = ownPrefix + "redrives"
	// HeaderOmitted is set if the copy is too large for the outbox and only refers to the row: "payload", or "headers,payload".
	HeaderOmitted = ownPrefix + "omitted"

	errorsPrefix = "__dlq.errors."
	ownPrefix    = "__troupe.dlq."
)

// untyped is the copy's type if the message had none.
const untyped = "troupe.DeadLetter"

// MaxBytes bounds the total size of key, headers and payload of a copy. A producer's usual limit for a batch is 1,000,012 bytes,
// and the message itself may come from a producer that allows more.
const MaxBytes = 990_000

// copy returns the row that carries the message to the dlq topic: its own headers and bytes, followed by our headers. It is
// written as plain columns, since outbox.Write would add attributes of its own. Parts that do not fit are left out and named.
func (w Writer) copy(l Letter) pg.Args {
	m := l.Message
	args := pg.Args{
		"id": (*uuid.UUID)(nil), "topic": w.Hop.DeadLetters(), "key": m.Key, "type": pgtext.Readable(m.Type, 1024), "payload": m.Payload,
	}
	if m.Type == "" {
		args["type"] = untyped
	}
	if id, err := uuid.Parse(m.ID); err == nil && id.String() == m.ID {
		args["id"] = &id
	}
	omit := func(what string) envelope.Header { return envelope.Header{Key: HeaderOmitted, Value: []byte(what)} }
	ours := append(l.headers(w.Group), w.Profile.headers(l, w.Group)...)
	headers := append(Original(l.Headers, w.Profile), ours...)
	var fits envelope.Message
	switch {
	case fits.SetHeaders(headers) != nil:
		headers, args["payload"] = append(ours, omit("headers,payload")), nil
	case Size(m.Key, m.Payload, headers) > MaxBytes:
		headers, args["payload"] = append(headers, omit("payload")), nil
	}
	args["headers"] = marshal(headers)
	return args
}

// headers returns the headers that every dead letter's copy has.
func (l Letter) headers(group string) []envelope.Header {
	text := func(key, value string) envelope.Header { return envelope.Header{Key: key, Value: []byte(value)} }
	return []envelope.Header{
		text(HeaderErrorsTopic, l.Message.Topic),
		text(HeaderErrorsPartition, strconv.Itoa(int(l.Partition))),
		text(HeaderErrorsOffset, strconv.FormatInt(l.Offset, 10)),
		text(HeaderErrorsGroup, group),
		text(HeaderErrorsDeliveryCount, strconv.Itoa(l.Attempts)),
		text(HeaderErrorsMessage, l.Error),
		text(HeaderDeadLetterID, l.ID),
		text(HeaderMessageID, l.Message.ID),
		text(HeaderClass, l.Class),
		text(HeaderHandler, l.Handler),
		text(HeaderFirstFailed, l.FirstFailed.UTC().Format(time.RFC3339Nano)),
		text(HeaderLastFailed, l.LastFailed.UTC().Format(time.RFC3339Nano)),
		text(HeaderRedrives, strconv.Itoa(l.Redrive)),
	}
}

// Original returns headers without the headers of an earlier dead letter.
func Original(headers []envelope.Header, p Profile) []envelope.Header {
	hs := make([]envelope.Header, 0, len(headers)+16)
	for _, h := range headers {
		if !strings.HasPrefix(h.Key, errorsPrefix) && !strings.HasPrefix(h.Key, ownPrefix) && !p.owns(h.Key) {
			hs = append(hs, h)
		}
	}
	return hs
}

// Size returns the size of a message in bytes.
func Size(key, payload []byte, headers []envelope.Header) int {
	n := len(key) + len(payload)
	for _, h := range headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}
