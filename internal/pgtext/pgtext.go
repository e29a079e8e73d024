// Package pgtext makes strings of messages fit into columns of type text.
package pgtext

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// Fits reports whether a text column can hold s: UTF-8 without NUL. Text in ASCII takes the fast path.
func Fits[T string | []byte](s T) bool {
	ascii := true
	for i := range len(s) {
		if s[i] == 0 {
			return false
		}
		ascii = ascii && s[i] < utf8.RuneSelf
	}
	return ascii || utf8.ValidString(string(s))
}

// Indexable returns s, or its hash if a text column or an index on it cannot hold s.
func Indexable(s string) string {
	if len(s) <= 255 && Fits(s) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// IsASCII reports whether s contains only ASCII: every encoding of a database has it as the same bytes.
func IsASCII[T string | []byte](s T) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// ASCII returns text with "?" for each character that is not printable ASCII. Every encoding can store it.
func ASCII(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, strings.ReplaceAll(text, "…", "..."))
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
