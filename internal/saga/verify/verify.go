package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/internal/lines"
	"github.com/troupe-go/troupe/internal/rule"
	"github.com/troupe-go/troupe/saga"
)

// A Finding is one mistake in a definition.
type Finding struct {
	// Rule is the ID of the Rule that the definition breaks.
	Rule     string        `json:"rule"`
	Severity rule.Severity `json:"severity"`
	// Path is the path of the mistake, such as steps[1].timeout.
	Path string `json:"path"`
	// Line is its line in the JSON, counted from 1; 0 if the JSON is not known.
	Line int `json:"line,omitempty"`
	// Text describes the mistake and the remedy.
	Text string `json:"text"`
	// Trace is a run that shows the mistake, if it needs one: first the values that choose the branches, as data.name = value,
	// then the outcomes of steps, as name: done.
	Trace []string `json:"trace,omitempty"`
}

// Options describe the flow around the definition. The zero value is valid.
type Options struct {
	// Hops holds all hops that exist, by name. Nil: the hops are unknown, and the rules about hops are not checked.
	Hops map[string]Hop
	// Personal has an entry for each type of messages whose schema is known: the kind of each personal field, by the field's path. It is
	// empty for a type without personal fields. Nil: what the codecs of a definition in Go know.
	Personal map[string]map[string]string
	// Types has the shape of each type of messages whose schema is known. Nil: none is known, and the fields of messages are not checked.
	Types map[string]*expr.Shape
}

// A Hop lists the messages of a hop.
type Hop struct {
	// Consumes lists the types of its commands, Emits the types of its events.
	Consumes []string `json:"consumes"`
	Emits    []string `json:"emits"`
}

// Definition returns the findings of d, in the order of its JSON. Without findings d breaks no rule. It does no I/O and is safe
// for concurrent use.
func Definition(d *saga.Definition, o Options) []Finding {
	found, _ := Within(context.Background(), d, o)
	return found
}

// Within is Definition until ctx ends; then it returns the error of ctx and no findings. A definition of the largest size can take hours.
func Within(ctx context.Context, d *saga.Definition, o Options) (found []Finding, err error) {
	defer func() {
		switch stop := recover().(type) {
		case nil:
		case stopped:
			found, err = nil, stop.err
		default:
			panic(stop)
		}
	}()
	return check(newModel(ctx, d), o), nil
}

// stopped is the value of the panic by which checkContext ends a check; Within recovers it.
type stopped struct{ err error }

// checkContext ends the check if its context has ended. Each loop calls it whose length may be a product of the sizes of lists in the definition.
func (m *model) checkContext() {
	if err := m.ctx.Err(); err != nil {
		panic(stopped{err})
	}
}

func check(m *model, o Options) []Finding {
	d := m.d
	for _, check := range []func(*model){
		tooManyCases, reachability, joins, branches, waysBack, pivots, answers, timeOuts, variables, deadlines, commands, ends, cancels, expected, pivotSkipped, dates,
	} {
		check(m)
	}
	if o.Hops != nil {
		hops(m, o.Hops)
	}
	if o.Types != nil {
		messageFields(m, o.Types)
	}
	types := d.Personal()
	if o.Personal != nil {
		types = o.Personal
	}
	if types != nil {
		personalFields(m, types)
	}
	slices.SortStableFunc(m.findings, byPlace)
	return m.findings
}

// JSON parses a definition and returns it with its findings, which have lines. If the text is no definition, d is nil and the
// mistakes are findings of the rule "definition".
func JSON(text []byte, o Options) (d *saga.Definition, found []Finding) {
	d, err := saga.Parse(text)
	if err != nil {
		mistakes := saga.Mistakes{{Line: 1, Text: err.Error()}}
		errors.As(err, &mistakes)
		for _, m := range mistakes {
			found = append(found, Finding{Rule: "definition", Severity: rule.Error, Path: m.Path, Line: m.Line, Text: m.Text})
		}
		return nil, found
	}
	found = Definition(d, o)
	Lines(text, found)
	slices.SortStableFunc(found, func(a, b Finding) int { return a.Line - b.Line })
	return d, found
}

// Lines sets the Line of each finding, from the JSON text of the definition.
func Lines(text []byte, found []Finding) {
	at, err := lines.Of(text)
	if err != nil {
		return
	}
	for i := range found {
		found[i].Line = at.Of(found[i].Path)
	}
}

// String returns the finding on one line, followed by its trace on further lines.
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

// byPlace sorts findings in the order of the definition: by the top-level field, then by the index in it, then by the path.
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
	"", "saga", "version", "key", "data", "lock", "timeout", "stash", "start", "steps", "deadlines", "ends", "cancel", "completed", "compensated",
}

// place returns the sort key of a path: the top-level field and the index in it.
func place(path string) int {
	var index int
	name, rest, indexed := strings.Cut(path, "[")
	if indexed {
		_, _ = fmt.Sscanf(rest, "%d", &index) // a list has far fewer than 1<<22 entries
	}
	name, _, _ = strings.Cut(name, ".")
	return slices.Index(topFields, name)<<22 + index
}
