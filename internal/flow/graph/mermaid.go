package graph

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/flow"
)

// Mermaid returns a flow as a flowchart (mermaid.js.org). Services are boxes, joins hexagons and expectations rounded boxes.
// Messages are arrows, to their receivers or to an end: dotted for a failure, thick for the message of a compensation. Each
// service must pass its Check.
func Mermaid(services []flow.Declaration) string {
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	for i, name := range names(services) {
		fmt.Fprintf(&b, "    s%d[%s]\n", i, quoted(name))
		for k, j := range services[i].Joins {
			fmt.Fprintf(&b, "    s%dj%d{{%s}}\n", i, k, quoted("join "+j.Name))
			fmt.Fprintf(&b, "    s%dj%d --- s%d\n", i, k, i)
		}
		for k, e := range services[i].Expectations {
			fmt.Fprintf(&b, "    s%de%d([%s])\n", i, k, quoted(e.Name+"<br/>within "+e.Within))
			fmt.Fprintf(&b, "    s%d --- s%de%d\n", i, i, k)
		}
	}
	ends := 0
	for k, s := range sendings(services) {
		from, label := node(services, hearing{s.from, s.by}), quoted(short(s.message.Type))
		if s.start {
			fmt.Fprintf(&b, "    b%d(( )) --> %s\n", k, from)
		}
		arrow := map[kind]string{plain: "-->", failure: "-.->", undoing: "==>"}[s.kind]
		for _, to := range s.to {
			fmt.Fprintf(&b, "    %s %s|%s| %s\n", from, arrow, label, node(services, to))
		}
		if s.message.Last || len(s.to) == 0 {
			fmt.Fprintf(&b, "    %s %s|%s| e%d((( )))\n", from, arrow, label, ends)
			ends++
		}
	}
	return b.String()
}

// node returns the name of a sender or receiver in the drawing.
func node(services []flow.Declaration, h hearing) string {
	s := services[h.service]
	if k := slices.IndexFunc(s.Joins, func(j flow.Join) bool { return j.Name == h.by }); h.by != "" && k >= 0 {
		return fmt.Sprintf("s%dj%d", h.service, k)
	}
	if k := slices.IndexFunc(s.Expectations, func(e flow.Expectation) bool { return e.Name == h.by }); h.by != "" && k >= 0 {
		return fmt.Sprintf("s%de%d", h.service, k)
	}
	return fmt.Sprintf("s%d", h.service)
}

// quoted returns text as a label: characters of Mermaid's syntax become entities, and <br/> remains a line break.
func quoted(text string) string {
	parts := strings.Split(text, "<br/>")
	for i, part := range parts {
		parts[i] = strings.NewReplacer("&", "#amp;", "#", "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;", "|", "#124;").Replace(part)
	}
	return `"` + strings.Join(parts, "<br/>") + `"`
}
