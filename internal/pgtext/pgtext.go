// Package pgtext makes strings of messages fit into columns of type text.
package pgtext

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// Fits reports whether a text column can hold b.
func Fits(b []byte) bool { return utf8.Valid(b) && !bytes.Contains(b, []byte{0}) }

// Indexable returns s, or its hash if a text column or an index on it cannot hold s.
func Indexable(s string) string {
	if len(s) <= 255 && Fits([]byte(s)) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Readable returns s, cut to limit bytes, with each part that a text column refuses replaced.
func Readable(s string, limit int) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
