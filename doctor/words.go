package doctor

import (
	"fmt"
	"strings"
)

// literal is text as SQL has it.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

func join[T ~string](all []T) string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = string(one)
	}
	return strings.Join(texts, ", ")
}

// statements has a line for each.
func statements(all []string, format string) string {
	lines := make([]string, len(all))
	for i, one := range all {
		lines[i] = fmt.Sprintf(format, one)
	}
	return strings.Join(lines, "\n")
}

// pick is one for a single thing, else many.
func pick(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func counted(n int, one string) string { return fmt.Sprintf("%d %s", n, pick(n, one, one+"s")) }
