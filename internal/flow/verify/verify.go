package verify

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/lines"
	"github.com/troupe-go/troupe/internal/rule"
)

// A Finding is one mistake in a flow.
type Finding struct {
	// Rule is the ID of the Rule that the flow breaks.
	Rule     string        `json:"rule"`
	Severity rule.Severity `json:"severity"`
	// File is the name of the service's file, as in Files; "" without files.
	File string `json:"file,omitempty"`
	// Line is its line in the JSON, counted from 1; 0 if the JSON is not known.
	Line int `json:"line,omitempty"`
	// Hop is the service to change first, as flow.hop. Path is the path in its declaration, such as reactions[1].on.
	Hop  string `json:"hop,omitempty"`
	Path string `json:"path"`
	// Messages lists the types that the finding is about.
	Messages []string `json:"messages,omitempty"`
	// Text describes the mistake and the remedy.
	Text string `json:"text"`
	// Trace is a run that shows the mistake, if it needs one: the actions of the services, in order.
	Trace []string `json:"trace,omitempty"`
}

// String returns the finding on one line, followed by its trace on further lines.
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
	// Name identifies the file in findings. It is a path.
	Name string
	Text []byte
}

// Files parses declarations and verifies them, with files and lines in the findings. Mistakes that make a text no valid
// declaration are findings of the rule "reactions". Then services is nil and nothing else is checked, since the missing service
// would cause findings everywhere.
func Files(files []File) (services []flow.Declaration, found []Finding) {
	for _, file := range files {
		s, err := flow.Parse(file.Text)
		if err != nil {
			mistakes := flow.Mistakes{{Text: err.Error()}}
			errors.As(err, &mistakes)
			for _, m := range mistakes {
				found = append(found, Finding{
					Rule: "reactions", Severity: rule.Error, File: file.Name, Line: max(1, m.Line), Path: m.Path, Text: m.Text,
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

// Flow returns the findings of services, service by service. Without findings they break no rule. Each service must pass its
// Check. Flow does no I/O and is safe for concurrent use.
func Flow(services []flow.Declaration) []Finding { return verified(services).findings }

func verified(services []flow.Declaration) *model {
	m := newModel(services)
	m.look()
	for _, check := range []func(*model){
		sameHop, consumers, feeders, beginsNowhere, cycles, retryOwners, joins, expectations, belowJoins, undone, tooMany,
	} {
		check(m)
	}
	m.sort()
	return m
}

// sort orders findings by service and, for each service, by the position in its file.
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

// byPlace compares paths in the order of a file: by field, then by index.
func byPlace(a, b string) int {
	place := func(path string) (int, int) {
		name, rest, _ := strings.Cut(path, "[")
		var index int
		_, _ = fmt.Sscanf(rest, "%d", &index) // 0 if there is none
		return slices.Index(topFields, name), index
	}
	fieldA, indexA := place(a)
	fieldB, indexB := place(b)
	return cmp.Or(cmp.Compare(fieldA, fieldB), cmp.Compare(indexA, indexB), strings.Compare(a, b))
}

// report adds a finding at a path of a service's file.
func (m *model) report(id string, service int, path string, messages []int, trace []string, format string, args ...any) {
	f := Finding{
		Rule: id, Severity: rules.Of(id).Severity, Hop: m.hop(service), Path: path, Text: fmt.Sprintf(format, args...), Trace: trace,
	}
	for _, id := range messages {
		if typ := m.messages[id].typ; !slices.Contains(f.Messages, typ) {
			f.Messages = append(f.Messages, typ)
		}
	}
	m.findings, m.where = append(m.findings, f), append(m.where, service)
}
