package doctor

import (
	"fmt"
	"strings"
)

// literal returns text as an SQL literal.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

func join[T ~string](all []T) string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = string(one)
	}
	return strings.Join(texts, ", ")
}

// statements returns one line for each item.
func statements(all []string, format string) string {
	lines := make([]string, len(all))
	for i, one := range all {
		lines[i] = fmt.Sprintf(format, one)
	}
	return strings.Join(lines, "\n")
}

// pick returns one if n is 1, else many.
func pick(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func counted(n int, one string) string { return fmt.Sprintf("%d %s", n, pick(n, one, one+"s")) }
