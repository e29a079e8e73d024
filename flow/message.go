package flow

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/flow/reactions"
	"github.com/troupe-go/troupe/retry"
)

// keyOf is a message's key as it stands in the tables: itself, or its hash where an index cannot take it. Messages that
// belong together are known by it, so one without a key cannot be waited for, however often it is tried.
func keyOf(m envelope.Message) (string, error) {
	key := string(m.Key)
	switch {
	case key == "":
		return "", retry.Permanent(errors.New("a message without a key: it belongs to nothing"))
	case len(key) > 255 || strings.Contains(key, "\x00") || !utf8.ValidString(key):
		sum := sha256.Sum256(m.Key)
		return "sha256:" + hex.EncodeToString(sum[:]), nil
	}
	return key, nil
}

// partOf is the message as a declaration names it.
func partOf(m envelope.Message) reactions.Message {
	return reactions.Message{Topic: m.Topic, Type: m.Type}
}

// restored is a message that was kept. Its topic is not.
func restored(headers, payload []byte) (m envelope.Message, err error) {
	hs, err := envelope.UnmarshalHeaders(headers)
	if err != nil {
		return m, err
	}
	err = m.SetHeaders(hs)
	m.Payload = payload
	return m, err
}
