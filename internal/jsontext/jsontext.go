// Package jsontext limits a JSON text before it is decoded. A text of a few megabytes, such as "[{},{},…]", has millions of values, each of
// which takes up to hundreds of bytes in memory. Compressed, as in a batch of Kafka, such a text has a few kilobytes.
package jsontext

import "fmt"

// MaxValues is the largest number of values in one text: objects, arrays and everything in them. Package schemas has the same limit for Avro.
const MaxValues = 1 << 20

// CheckValues returns an error for a text with more than MaxValues values. It does not check that the text is JSON.
func CheckValues(text []byte) error {
	if len(text) <= 2*MaxValues { // a value has at least one character, and one that separates it from the next
		return nil
	}
	if Values(text) > MaxValues {
		return fmt.Errorf("more than %d values", MaxValues)
	}
	return nil
}

// Values returns the number of values in a text, or more. It does not check that the text is JSON.
func Values(text []byte) int {
	n, quoted := 1, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || (c == '[' || c == '{') && !empty(text[i+1:])):
			n++
		}
	}
	return n
}

// empty reports whether the first character of rest that is not white space closes the list or the object.
func empty(rest []byte) bool {
	for _, c := range rest {
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			return c == ']' || c == '}'
		}
	}
	return false
}

// Exponents returns the number of numbers with an exponent in a JSON text, or more. Written without it, such a number may be much longer.
func Exponents(text []byte) (n int) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && i > 0 && (c == 'e' || c == 'E') && text[i-1] >= '0' && text[i-1] <= '9': // not the end of true
			n++
		}
	}
	return n
}

// Nested returns how many arrays and objects of a JSON text are within each other at most.
func Nested(text []byte) (most int) {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
			most = max(most, depth)
		case c == ']' || c == '}':
			depth--
		}
	}
	return most
}
