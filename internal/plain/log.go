package plain

import (
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Log returns a writer for a log, with a line of JSON in each write. It writes characters that are not printable as escapes of JSON. Package
// zerolog escapes only the ones of ASCII: a terminal executes U+009B as it does ESC [, and a bidirectional control displays a line in
// another order.
func Log(w io.Writer) io.Writer { return escaped{w} }

type escaped struct{ to io.Writer }

func (e escaped) Write(line []byte) (int, error) {
	var text []byte
	from := 0 // text has line up to here
	for at := 0; at < len(line); {
		r, size := utf8.DecodeRune(line[at:])
		if r >= utf8.RuneSelf && !unicode.IsPrint(r) {
			text = append(text, line[from:at]...)
			for _, unit := range utf16.Encode([]rune{r}) {
				text = fmt.Appendf(text, `\u%04x`, unit)
			}
			from = at + size
		}
		at += size
	}
	out := line
	if from > 0 {
		out = append(text, line[from:]...)
	}
	if _, err := e.to.Write(out); err != nil {
		return 0, err
	}
	return len(line), nil
}
