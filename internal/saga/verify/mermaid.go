package verify

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/rule"
	"github.com/troupe-go/troupe/saga"
)

// Mermaid draws a definition as a flowchart (mermaid.js.org) and marks the findings: the steps with errors and warnings, and the
// trace of the first error that has one, or else of the first warning: the steps that are done, the steps that are skipped, and
// why.
func Mermaid(d *saga.Definition, found []Finding) string {
	var b strings.Builder
	spec := d.Spec()
	index := make(map[string]int)
	for i, st := range spec.Steps {
		index[st.Name] = i
	}
	shown := traced(found)
	fmt.Fprintf(&b, "%%%% %s\nflowchart TD\n", d)
	classes := make(map[string][]string)
	mark := func(class, node string) {
		if !slices.Contains(classes[class], node) {
			classes[class] = append(classes[class], node)
		}
	}
	onWay := make(map[int]bool)
	for _, line := range shown.Trace {
		name, outcome, _ := strings.Cut(line, ": ")
		name, _, _ = strings.Cut(name, "[") // an item is drawn as its step
		i, step := index[name]
		switch {
		case step && outcome == "skipped":
			mark("skipped", drawn(i))
		case step:
			onWay[i] = true
			mark("way", drawn(i))
		}
	}
	var marked []string // indexes of edges
	edges := 0
	for i, st := range spec.Steps {
		fmt.Fprintf(&b, "    %s%s\n", drawn(i), shape(st))
		for _, name := range st.Needs {
			label := ""
			if st.When != "" {
				label = "|" + quoted(st.When) + "|"
			}
			fmt.Fprintf(&b, "    %s -->%s %s\n", drawn(index[name]), label, drawn(i))
			if onWay[i] && onWay[index[name]] {
				marked = append(marked, fmt.Sprint(edges))
			}
			edges++
		}
		if c := st.Compensation; c != nil {
			e := edgeOf(c.Command, c.Call)
			fmt.Fprintf(&b, "    %s -.-> u%d([%s])\n", drawn(i), i, quoted(e.typ+" → "+e.hop))
			edges++
		}
	}
	for _, f := range found {
		var i int
		if _, err := fmt.Sscanf(f.Path, "steps[%d]", &i); err == nil {
			mark(string(f.Severity), drawn(i))
		}
	}
	if shown.Rule != "" {
		text := shown.Rule + ": " + shown.Text
		for _, line := range shown.Trace {
			text += "<br/>" + line
		}
		fmt.Fprintf(&b, "    found[%s]\n", quoted(text))
		mark("note", "found")
	}
	for _, style := range [][2]string{
		{"way", "stroke:#b45309,stroke-width:3px"}, {"skipped", "stroke-dasharray:4 4,color:#6b7280"},
		{"warning", "fill:#fef3c7"}, {"error", "fill:#fecaca"}, {"note", "text-align:left,fill:#fff"},
	} {
		if nodes := classes[style[0]]; len(nodes) > 0 {
			fmt.Fprintf(&b, "    classDef %s %s\n    class %s %s\n", style[0], style[1], strings.Join(nodes, ","), style[0])
		}
	}
	if len(marked) > 0 {
		fmt.Fprintf(&b, "    linkStyle %s stroke:#b45309,stroke-width:3px\n", strings.Join(marked, ","))
	}
	return b.String()
}

// traced returns the finding whose trace is shown.
func traced(found []Finding) (shown Finding) {
	for _, f := range found {
		if len(f.Trace) > 0 && (shown.Rule == "" || shown.Severity == rule.Warning && f.Severity == rule.Error) {
			shown = f
		}
	}
	return shown
}

func drawn(i int) string { return fmt.Sprintf("s%d", i) }

// shape returns the node of a step: a box if it sends, a hexagon for the pivot, a flag if it waits, a circle if it only joins
// others.
func shape(st saga.Step) string {
	text := st.Name
	if st.Join != saga.All {
		text += "<br/>" + string(st.Join)
	}
	if st.AtLeast > 0 {
		text += fmt.Sprintf("<br/>at least %d", st.AtLeast)
	}
	if st.Optional {
		text += "<br/>optional"
	}
	if f := st.ForEach; f != nil {
		text += "<br/>for each " + f.As
	}
	e := edgeOf(st.Command, st.Call)
	switch {
	case st.Pivot:
		return "{{" + quoted(text+"<br/>"+e.typ+" → "+e.hop+"<br/>pivot") + "}}"
	case e != edge{}:
		return "[" + quoted(text+"<br/>"+e.typ+" → "+e.hop) + "]"
	case len(st.Success)+len(st.Failure) > 0:
		return ">" + quoted(text+"<br/>waits") + "]"
	}
	return "((" + quoted(text) + "))"
}

// quoted returns text as a label. Characters that Mermaid would interpret are written as entities; <br/> remains a line break.
func quoted(text string) string {
	lines := strings.Split(text, "<br/>")
	for i, line := range lines {
		lines[i] = strings.NewReplacer("&", "#amp;", "#", "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;", "\n", " ").Replace(line)
	}
	return `"` + strings.Join(lines, "<br/>") + `"`
}
