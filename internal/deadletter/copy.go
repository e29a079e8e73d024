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

// Headers of the copy on the dlq topic, which package participant exports and explains.
const (
	HeaderErrorsTopic         = errorsPrefix + "topic"
	HeaderErrorsPartition     = errorsPrefix + "partition"
	HeaderErrorsOffset        = errorsPrefix + "offset"
	HeaderErrorsGroup         = errorsPrefix + "group"
	HeaderErrorsDeliveryCount = errorsPrefix + "delivery.count"
	HeaderErrorsMessage       = errorsPrefix + "message"

	HeaderDeadLetterID = ownPrefix + "id"
	HeaderMessageID    = ownPrefix + "message.id"
	HeaderClass        = ownPrefix + "class"
	HeaderHandler      = ownPrefix + "handler"
	HeaderFirstFailed  = ownPrefix + "first.failed"
	HeaderLastFailed   = ownPrefix + "last.failed"
	HeaderRedrives     = ownPrefix + "redrives"
	HeaderOmitted      = ownPrefix + "omitted"

	errorsPrefix = "__dlq.errors."
	ownPrefix    = "__troupe.dlq."
)

// untyped is the copy's type where the message had none.
const untyped = "troupe.DeadLetter"

// MaxBytes is the most that key, headers and payload of a copy may have: a producer's usual limit for a batch is
// 1,000,012 bytes, and the message itself may have come from one that allows more.
const MaxBytes = 990_000

// copy returns the row that carries the message to the dlq topic: its own headers and bytes, and ours behind them. It is
// written as plain columns, since outbox.Write would give it attributes of its own. What does not fit is left out and
// named.
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

// headers are those of the copy that every dead letter has.
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

// Original returns headers without those of an earlier dead letter.
func Original(headers []envelope.Header, p Profile) []envelope.Header {
	hs := make([]envelope.Header, 0, len(headers)+16)
	for _, h := range headers {
		if !strings.HasPrefix(h.Key, errorsPrefix) && !strings.HasPrefix(h.Key, ownPrefix) && !p.owns(h.Key) {
			hs = append(hs, h)
		}
	}
	return hs
}

// Size returns how many bytes a message has.
func Size(key, payload []byte, headers []envelope.Header) int {
	n := len(key) + len(payload)
	for _, h := range headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}
