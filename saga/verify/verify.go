package verify

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/saga"
)

// Severity says how bad a finding is.
type Severity string

// An Error is something that goes wrong when its case comes; a Warning something that a person should have decided.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// A Finding is one thing that is wrong with a definition.
type Finding struct {
	// Rule is the id of the Rule that it breaks.
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	// Path is where it stands, such as steps[1].timeout.
	Path string `json:"path"`
	// Line of the JSON, counted from 1; 0 where the JSON is not known.
	Line int `json:"line,omitempty"`
	// Text is what is wrong and what to do.
	Text string `json:"text"`
	// Trace is the run that shows it, where it takes one: first the values that choose the branches, as data.name = value,
	// then what becomes of steps, as name: done.
	Trace []string `json:"trace,omitempty"`
}

// Options are what is known beside the definition. The zero value is nothing.
type Options struct {
	// Hops are all hops that there are, by their names. Nil: they are not known, and no hop is missed.
	Hops map[string]Hop
}

// A Hop is what is known of one.
type Hop struct {
	// Consumes are the types of its commands, Emits those of its events.
	Consumes []string `json:"consumes"`
	Emits    []string `json:"emits"`
}

// Definition says what is wrong with d, in the order of its JSON; nothing means that no rule is broken. It does no I/O and
// may be called concurrently.
func Definition(d *saga.Definition, o Options) []Finding {
	m := newModel(d)
	for _, check := range []func(*model){
		tooManyCases, reachability, joins, branches, waysBack, pivots, answers, timeOuts, variables, deadlines, commands, ends,
	} {
		check(m)
	}
	if o.Hops != nil {
		hops(m, o.Hops)
	}
	slices.SortStableFunc(m.findings, byPlace)
	return m.findings
}

// JSON is Definition of a text, with the lines of what it finds. What keeps the text from being a definition at all is found
// too, by the rule "definition"; then d is nil.
func JSON(text []byte, o Options) (d *saga.Definition, found []Finding) {
	d, err := saga.Parse(text)
	if err != nil {
		mistakes := saga.Mistakes{{Line: 1, Text: err.Error()}}
		errors.As(err, &mistakes)
		for _, m := range mistakes {
			found = append(found, Finding{Rule: "definition", Severity: Error, Path: m.Path, Line: m.Line, Text: m.Text})
		}
		return nil, found
	}
	found = Definition(d, o)
	Lines(text, found)
	slices.SortStableFunc(found, func(a, b Finding) int { return a.Line - b.Line })
	return d, found
}

// Lines gives findings their lines in the JSON of their definition.
func Lines(text []byte, found []Finding) {
	for i := range found {
		found[i].Line = saga.LineOf(text, found[i].Path)
	}
}

// T is what Test needs of a *testing.T.
type T interface {
	Helper()
	Errorf(format string, args ...any)
}

// Test fails a test for everything that is wrong with definitions, warnings too, alone and together.
func Test(t T, ds ...*saga.Definition) {
	t.Helper()
	together := Together(ds)
	for i, d := range ds {
		for _, f := range append(Definition(d, Options{}), together[i]...) {
			t.Errorf("saga %s: %s", d, f)
		}
	}
}

// String is the finding on one line, and its trace on others.
func (f Finding) String() string {
	text := string(f.Severity) + ": " + f.Rule + ": "
	if f.Path != "" {
		text += f.Path + ": "
	}
	text += f.Text
	for _, at := range f.Trace {
		text += "\n\t" + at
	}
	return text
}

// byPlace sorts findings as the definition is read: by the top-level field, then by the index in it, then by the path.
func byPlace(a, b Finding) int {
	ra, rb := place(a.Path), place(b.Path)
	if ra != rb {
		return ra - rb
	}
	if c := strings.Compare(a.Path, b.Path); c != 0 {
		return c
	}
	return strings.Compare(a.Rule, b.Rule)
}

var topFields = []string{
	"", "saga", "version", "key", "data", "lock", "timeout", "stash", "start", "steps", "deadlines", "ends", "completed", "compensated",
}

// place is the top-level field with the index in it.
func place(path string) int {
	var index int
	name, rest, indexed := strings.Cut(path, "[")
	if indexed {
		_, _ = fmt.Sscanf(rest, "%d", &index) // a list has far fewer entries than 1<<22
	}
	name, _, _ = strings.Cut(name, ".")
	return slices.Index(topFields, name)<<22 + index
}
