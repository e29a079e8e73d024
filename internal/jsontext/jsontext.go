// Package jsontext limits a JSON text before it is decoded or indented. A text of a few megabytes, such as "[{},{},…]", has millions of values, each of
// which takes up to hundreds of bytes in memory. Compressed, as in a batch of Kafka, such a text has a few kilobytes.
package jsontext

import (
	"bytes"
	"encoding/json"
	"fmt"
)

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

const (
	mostIndented = 4 << 20  // bytes of a text that is indented
	mostAdded    = 64 << 10 // bytes of a small text that is indented, whatever the text's size
)

// Indent returns a JSON text with two spaces of indent, each line but the first after a prefix. It returns the unchanged text if that is large,
// deep or no JSON. Two spaces for each level make gigabytes of a few megabytes, or of some kilobytes with thousands of levels.
func Indent(text []byte, prefix string) []byte {
	if len(text) > mostIndented || indentedBytes(text, len(prefix)) > 8*len(text)+mostAdded {
		return text
	}
	var b bytes.Buffer
	if json.Indent(&b, text, prefix, "  ") != nil {
		return text
	}
	return b.Bytes()
}

// indentedBytes returns the size of the indented text, or more.
func indentedBytes(text []byte, prefix int) int {
	size, depth, quoted, hollow := len(text), 0, false, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			if hollow = empty(text[i+1:]); !hollow { // it stays on its line
				depth++
				size += 1 + prefix + 2*depth
			}
		case c == ']' || c == '}':
			if !hollow {
				depth = max(depth-1, 0)
				size += 1 + prefix + 2*depth
			}
			hollow = false
		case c == ',':
			size += 1 + prefix + 2*depth
		case c == ':':
			size++
		}
	}
	return size
}
