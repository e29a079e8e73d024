package avsc

import (
	"fmt"
	"strings"
)

// A Level is a compatibility level, named as in Confluent's registry: which versions of a schema must be able to read which
// others.
type Level string

// The levels. A plain level compares with the latest earlier version, a transitive one with all of them.
const (
	None               Level = "NONE"
	Backward           Level = "BACKWARD" // the new version reads data of earlier ones: deploy readers first
	BackwardTransitive Level = "BACKWARD_TRANSITIVE"
	Forward            Level = "FORWARD" // earlier versions read data of the new one: deploy writers first
	ForwardTransitive  Level = "FORWARD_TRANSITIVE"
	Full               Level = "FULL" // both: deploy in any order, which a running flow needs
	FullTransitive     Level = "FULL_TRANSITIVE"
)

var levels = []Level{Backward, BackwardTransitive, Forward, ForwardTransitive, Full, FullTransitive, None}

// ParseLevel parses a level in upper or lower case, with _ or -.
func ParseLevel(text string) (Level, error) {
	l := Level(strings.ReplaceAll(strings.ToUpper(text), "-", "_"))
	var names []string
	for _, known := range levels {
		if l == known {
			return l, nil
		}
		names = append(names, string(known))
	}
	return "", fmt.Errorf("compatibility level %q: want one of %s", text, strings.Join(names, ", "))
}

// Transitive reports whether the level compares with all earlier versions, not only the latest.
func (l Level) Transitive() bool { return strings.HasSuffix(string(l), "_TRANSITIVE") }

// directions returns whether the new version must read the earlier one, and the earlier one the new one.
func (l Level) directions() (backward, forward bool) {
	switch l {
	case Backward, BackwardTransitive:
		return true, false
	case Forward, ForwardTransitive:
		return false, true
	case Full, FullTransitive:
		return true, true
	}
	return false, false
}
