// Package plain keeps control characters of names and messages out of terminals, logs and records. A terminal executes escape
// sequences, a line break forges a line of a log or of a table, and bidirectional controls display a name in another order than
// it was written.
package plain

import (
	"errors"
	"slices"
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

// CheckName refuses a person's name that is not text of one line, or that shows nothing, by the categories of Unicode:
//
//	L, N, S       letters, digits and symbols: the name needs one that is not blank
//	M, P, Zs      marks, punctuation and spaces: allowed
//	Cc, Zl, Zp    control characters and line breaks: refused
//	Cf            refused, since some change the direction of text; allowed are those inside words of some scripts, and the
//	              tags behind a black flag, which are the flag of a region
func CheckName(name string) error {
	if !utf8.ValidString(name) {
		return errors.New("the name is not UTF-8")
	}
	shown, flag := false, false
	for _, r := range name {
		tag := r >= 0xe0020 && r <= 0xe007f
		switch {
		case unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) || r == blankBraille: // a filler
		case unicode.In(r, unicode.L, unicode.N, unicode.S):
			shown = true
		case unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp), unicode.Is(unicode.Cf, r) && !slices.Contains(inWords, r) && !(tag && flag):
			return errors.New("the name has a line break, or another character that is not shown: want text of one line")
		}
		flag = r == blackFlag || tag && flag && r != endOfTags
	}
	if !shown {
		return errors.New("the name shows nothing: want a letter, a digit or a symbol in it")
	}
	return nil
}

const (
	blankBraille = '\u2800'     // a symbol without dots
	blackFlag    = '\U0001f3f4' // begins the flag of a region, such as England, whose letters are tags
	endOfTags    = '\U000e007f'
)

// inWords lists characters of Cf that change how adjacent letters look: zero width non-joiner and joiner, and the Mongolian
// vowel separator.
var inWords = []rune{'\u200c', '\u200d', '\u180e'}
