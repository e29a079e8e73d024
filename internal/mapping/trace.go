package mapping

import (
	"strconv"
	"strings"
	"unicode/utf16"
)

// properties parses text as java.util.Properties.load does: comments, continued lines, escapes.
func properties(text string) map[string]string {
	found := make(map[string]string)
	for _, line := range logicalLines(text) {
		name, value := cutProperty(line)
		found[unescape(name)] = unescape(value)
	}
	return found
}

// logicalLines joins lines whose end is escaped, and leaves out comments and empty lines.
func logicalLines(text string) []string {
	var lines []string
	var open string
	continued := false
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
		line = strings.TrimLeft(line, " \t\f")
		if !continued && (line == "" || line[0] == '#' || line[0] == '!') {
			continue
		}
		kept := strings.TrimRight(line, `\`)
		continued = (len(line)-len(kept))%2 == 1
		if continued {
			open += line[:len(line)-1]
			continue
		}
		lines = append(lines, open+line)
		open = ""
	}
	if open != "" {
		lines = append(lines, open)
	}
	return lines
}

// cutProperty splits at the first =, : or space that is not escaped, without the spaces around it.
func cutProperty(line string) (name, value string) {
	end := 0
	for end < len(line) && !strings.ContainsRune("=: \t\f", rune(line[end])) {
		if line[end] == '\\' {
			end++
		}
		end++
	}
	end = min(end, len(line))
	value = strings.TrimLeft(line[end:], " \t\f")
	if value != "" && (value[0] == '=' || value[0] == ':') {
		value = strings.TrimLeft(value[1:], " \t\f")
	}
	return line[:end], value
}

func unescape(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			if text[i] != '\\' {
				b.WriteByte(text[i])
			}
			continue
		}
		i++
		switch text[i] {
		case 't':
			b.WriteByte('\t')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 'f':
			b.WriteByte('\f')
		case 'u':
			r, size := escapedRune(text[i+1:])
			b.WriteRune(r)
			i += size
		default:
			b.WriteByte(text[i])
		}
	}
	return b.String()
}

// escapedRune reads four hex digits, and the second half of a surrogate pair after them.
func escapedRune(text string) (rune, int) {
	unit := func(s string) (rune, bool) {
		if len(s) < 4 {
			return 0, false
		}
		n, err := strconv.ParseUint(s[:4], 16, 16)
		return rune(n), err == nil
	}
	high, ok := unit(text)
	if !ok {
		return '\uFFFD', 0
	}
	if utf16.IsSurrogate(high) && strings.HasPrefix(text[4:], `\u`) {
		if low, ok := unit(text[6:]); ok {
			return utf16.DecodeRune(high, low), 10
		}
	}
	return high, 4
}

// isTraceParent reports whether text is a valid W3C traceparent: version, trace id, span id, flags, in lower-case hex.
func isTraceParent(text string) bool {
	const size = 55 // length of version 00; later versions may be longer
	if len(text) < size || len(text) > size && (text[:2] == "00" || text[size] != '-') {
		return false
	}
	for i := range size {
		dash := i == 2 || i == 35 || i == 52
		hex := text[i] >= '0' && text[i] <= '9' || text[i] >= 'a' && text[i] <= 'f'
		if dash && text[i] != '-' || !dash && !hex {
			return false
		}
	}
	return text[:2] != "ff" && strings.Trim(text[3:35], "0") != "" && strings.Trim(text[36:52], "0") != ""
}
