// Package plain keeps control characters of names and messages out of terminals, logs and records. A terminal executes escape
// sequences, a line break forges a line of a log or of a table, and bidirectional controls display a name in another order than
// it was written.
package plain

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line returns text with "·" for each character that is not printable, cut to width characters.
func Line(text string, width int) string {
	var b strings.Builder
	n := 0
	for _, r := range text {
		if n++; n > width {
			return b.String() + "…"
		}
		if !unicode.IsPrint(r) {
			r = '·'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Lines returns text with "·" for each character that is not printable, with its line breaks.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Line(line, len(line))
	}
	return strings.Join(lines, "\n")
}

// CheckName refuses a person's name that is not text of one line: with a line break, an escape, another control character, or one
// that changes the direction of text. The joiners of some scripts are allowed.
func CheckName(name string) error {
	if !utf8.ValidString(name) {
		return errors.New("the name is not UTF-8")
	}
	const nonJoiner, joiner = '\u200c', '\u200d'
	for _, r := range name {
		if r != nonJoiner && r != joiner && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return errors.New("the name has a line break, or another character that is not shown: want text of one line")
		}
	}
	return nil
}
