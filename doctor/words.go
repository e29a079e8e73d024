package doctor

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

var plain = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// quoted is a name as SQL has it, in quotes where it needs them.
func quoted(name string) string {
	if plain.MatchString(name) && name != "offset" && name != "user" {
		return name
	}
	return pgx.Identifier{name}.Sanitize()
}

// literal is text as SQL has it.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

func split(list string) []string { return strings.Split(list, ", ") }

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
