package schemas

import (
	"fmt"
	"strings"
)

// A Level is which versions of a schema must be able to read which, in the words of Confluent's registry.
type Level string

// The levels. A plain one looks at the latest earlier version, a transitive one at all of them.
const (
	None               Level = "NONE"
	Backward           Level = "BACKWARD" // the new version reads what earlier ones wrote: readers go first
	BackwardTransitive Level = "BACKWARD_TRANSITIVE"
	Forward            Level = "FORWARD" // earlier versions read what the new one writes: writers go first
	ForwardTransitive  Level = "FORWARD_TRANSITIVE"
	Full               Level = "FULL" // both: in any order, which is what a running flow needs
	FullTransitive     Level = "FULL_TRANSITIVE"
)

var levels = []Level{Backward, BackwardTransitive, Forward, ForwardTransitive, Full, FullTransitive, None}

// ParseLevel reads a level in upper or lower case, with _ or -.
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

// Transitive says whether all earlier versions count and not only the latest.
func (l Level) Transitive() bool { return strings.HasSuffix(string(l), "_TRANSITIVE") }

// directions are what must be readable: the earlier version by the new one, the new one by the earlier.
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
