package lines

import (
	"fmt"
	"strings"
)

// Mistake returns the error text about a part of a file. path is its path, or empty. line is its line, or 0 if it is unknown.
func Mistake(path string, line int, text string) string {
	if path != "" {
		text = path + ": " + text
	}
	if line > 0 {
		text = fmt.Sprintf("line %d: %s", line, text)
	}
	return text
}

// Mistakes lists up to 100 mistakes, one on each line.
func Mistakes[M error](all []M) string {
	const most = 100
	var b strings.Builder
	for i, m := range all {
		if i > 0 {
			b.WriteString("\n")
		}
		if i == most {
			_, _ = fmt.Fprintf(&b, "and %d more mistakes", len(all)-most)
			break
		}
		b.WriteString(m.Error())
	}
	return b.String()
}
