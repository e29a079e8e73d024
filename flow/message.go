package flow

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/retry"
)

// keyOf returns a message's key as it is stored in the tables: the key itself, or its hash if an index cannot hold it. The key
// decides which messages belong together, so a message without one can never be awaited: its error is permanent.
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

// partOf returns the message as a declaration names it.
func partOf(m envelope.Message) Message {
	return Message{Topic: m.Topic, Type: m.Type}
}

// restored returns a stored message. Its topic and key are not stored, and stay empty.
func restored(headers, payload []byte) (m envelope.Message, err error) {
	hs, err := envelope.UnmarshalHeaders(headers)
	if err != nil {
		return m, err
	}
	err = m.SetHeaders(hs)
	m.Payload = payload
	return m, err
}
