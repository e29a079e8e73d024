package verify

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/flow/reactions"
	"github.com/troupe-go/troupe/internal/lines"
)

// Severity says how bad a finding is.
type Severity string

// An Error is something that goes wrong when its case comes; a Warning something that a person should have decided.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// A Finding is one thing that is wrong with a flow.
type Finding struct {
	// Rule is the id of the Rule that it breaks.
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	// File is the service's, by its name in Files; "" where there are none.
	File string `json:"file,omitempty"`
	// Line of the JSON, counted from 1; 0 where the JSON is not known.
	Line int `json:"line,omitempty"`
	// Hop is the service that should be changed first, flow.hop; Path is where it stands there, such as reactions[1].on.
	Hop  string `json:"hop,omitempty"`
	Path string `json:"path"`
	// Messages are the types that it is about.
	Messages []string `json:"messages,omitempty"`
	// Text is what is wrong and what to do.
	Text string `json:"text"`
	// Trace is the run that shows it, where it takes one: what each service does, in order.
	Trace []string `json:"trace,omitempty"`
}

// String is the finding on one line, and its trace on others.
func (f Finding) String() string {
	text := fmt.Sprintf("%s: %s: ", f.Severity, f.Rule)
	if f.Hop != "" {
		text += f.Hop + " "
	}
	if f.Path != "" {
		text += f.Path
	}
	text = strings.TrimSuffix(strings.TrimSuffix(text, " "), ":") + ": " + f.Text
	for _, at := range f.Trace {
		text += "\n\t" + at
	}
	return text
}

// A File is the text of a service's reactions.json.
type File struct {
	// Name is how findings call it: a path.
	Name string
	Text []byte
}

// Files is Flow of texts, with the files and lines of what it finds. What keeps a text from saying what a service does is
// found too, by the rule "reactions"; then services is nil, and nothing else is looked at, since what such a file was to say
// would be missed everywhere.
func Files(files []File) (services []reactions.Service, found []Finding) {
	for _, file := range files {
		s, err := reactions.Parse(file.Text)
		if err != nil {
			mistakes := reactions.Mistakes{{Text: err.Error()}}
			errors.As(err, &mistakes)
			for _, m := range mistakes {
				found = append(found, Finding{
					Rule: "reactions", Severity: Error, File: file.Name, Line: max(1, m.Line), Path: m.Path, Text: m.Text,
				})
			}
			continue
		}
		services = append(services, s)
	}
	if len(found) > 0 {
		return nil, found
	}
	m := verified(services)
	for i, f := range m.findings {
		file := files[m.where[i]]
		f.File, f.Line = file.Name, 1
		if at, err := lines.Of(file.Text); err == nil {
			f.Line = at.Of(f.Path)
		}
		found = append(found, f)
	}
	return services, found
}

// Flow says what is wrong with services together, service by service; nothing means that no rule is broken. Each must pass
// its Check. It does no I/O and may be called concurrently.
func Flow(services []reactions.Service) []Finding { return verified(services).findings }

func verified(services []reactions.Service) *model {
	m := newModel(services)
	m.look()
	for _, check := range []func(*model){
		sameHop, consumers, feeders, beginsNowhere, cycles, retryOwners, joins, expectations, undone, tooMany,
	} {
		check(m)
	}
	m.sort()
	return m
}

// sort puts findings into the order of services and, in each, of its file.
func (m *model) sort() {
	order := make([]int, len(m.findings))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		fa, fb := m.findings[a], m.findings[b]
		return cmp.Or(cmp.Compare(m.where[a], m.where[b]), byPlace(fa.Path, fb.Path), strings.Compare(fa.Rule, fb.Rule))
	})
	findings, where := make([]Finding, len(order)), make([]int, len(order))
	for k, i := range order {
		findings[k], where[k] = m.findings[i], m.where[i]
	}
	m.findings, m.where = findings, where
}

var topFields = []string{"", "hop", "starts", "reactions", "joins", "expectations"}

// byPlace compares paths as a file has them: by the field, then by the index in it.
func byPlace(a, b string) int {
	place := func(path string) (int, int) {
		name, rest, _ := strings.Cut(path, "[")
		var index int
		_, _ = fmt.Sscanf(rest, "%d", &index) // 0 where there is none
		return slices.Index(topFields, name), index
	}
	fieldA, indexA := place(a)
	fieldB, indexB := place(b)
	return cmp.Or(cmp.Compare(fieldA, fieldB), cmp.Compare(indexA, indexB), strings.Compare(a, b))
}

// report adds a finding about a place in a service's file.
func (m *model) report(rule string, service int, path string, messages []int, trace []string, format string, args ...any) {
	f := Finding{
		Rule: rule, Severity: ruleOf(rule).Severity, Hop: m.hop(service), Path: path, Text: fmt.Sprintf(format, args...), Trace: trace,
	}
	for _, id := range messages {
		if typ := m.messages[id].typ; !slices.Contains(f.Messages, typ) {
			f.Messages = append(f.Messages, typ)
		}
	}
	m.findings, m.where = append(m.findings, f), append(m.where, service)
}

// T is what Test needs of a *testing.T.
type T interface {
	Helper()
	Errorf(format string, args ...any)
}

// Test fails a test for everything that is wrong with services together, warnings too.
func Test(t T, services ...reactions.Service) {
	t.Helper()
	for _, f := range Flow(services) {
		t.Errorf("%s", f)
	}
}
