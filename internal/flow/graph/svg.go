package graph

import (
	"fmt"
	"html"
	"strings"

	"github.com/troupe-go/troupe/flow"
)

// Sizes in the drawing, in its own units.
const (
	lane   = 170 // between two services
	row    = 34  // between two messages
	margin = 95
	top    = 70
)

const style = `svg{font-family:ui-sans-serif,system-ui,"Segoe UI",Helvetica,Arial,sans-serif;background:#fff}
.box{fill:#eef4ff;stroke:#3b6fd4;stroke-width:1.5}.t{font-size:13px;font-weight:600;text-anchor:middle;fill:#1b1f24}
.l{stroke:#c8ccd1;stroke-width:1}.n{font-size:11px;fill:#1b1f24;text-anchor:middle}
.p{stroke:#57606a}.f{stroke:#b3261e;stroke-dasharray:5 3}.u{stroke:#b45309}
.p,.f,.u{stroke-width:1.5;fill:none}.d{fill:#57606a}.e{fill:#fff;stroke:#57606a;stroke-width:1.5}.w{font-size:10px;fill:#57606a;text-anchor:middle}.b{text-anchor:start}`

// SVG returns a flow as a picture that needs no other file: a vertical line for each service, from left to right, and from
// top to bottom the messages, ordered by their distance from a start, each with an arrow to every service that receives it.
// Failures are red and dashed, messages of compensations brown. A filled dot marks a start, a ring an end. A join or
// expectation that receives or sends is named at its arrow. Each service must pass its Check.
func SVG(services []flow.Declaration) string {
	all := sendings(services)
	width, height := 2*margin+lane*max(0, len(services)-1), top+row*(len(all)+1)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">`+"\n<style>\n%s\n</style>\n",
		width, height, html.EscapeString("Messages between "+strings.Join(names(services), ", ")), style)
	b.WriteString(`<defs><marker id="a" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">` +
		`<path d="M0,0L10,5L0,10z" fill="#57606a"/></marker></defs>` + "\n")
	for i, name := range names(services) {
		fmt.Fprintf(&b, `<path class="l" d="M%d,46V%d"/><rect class="box" x="%d" y="16" width="150" height="30" rx="6"/>`+
			`<text class="t" x="%d" y="36">%s</text>`+"\n", x(i), height-10, x(i)-75, x(i), html.EscapeString(clipped(name, 20)))
	}
	for k, s := range all {
		b.WriteString(s.svg(top + row*(k+1) - 10))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func x(service int) int { return margin + lane*service }

// svg returns the drawing of a message at a height.
func (s sending) svg(y int) string {
	var b strings.Builder
	from, class := x(s.from), map[kind]string{plain: "p", failure: "f", undoing: "u"}[s.kind]
	left, right := from, from
	for _, to := range s.to {
		at := x(to.service)
		if at == from { // to itself: a loop next to the line
			fmt.Fprintf(&b, `<path class="%s" d="M%d,%dh26v12H%d" marker-end="url(#a)"/>`, class, from, y, from+2)
		} else {
			fmt.Fprintf(&b, `<path class="%s" d="M%d,%dH%d" marker-end="url(#a)"/>`, class, from, y, at)
		}
		if to.by != "" {
			name, place := html.EscapeString(clipped(to.by, 24)), fmt.Sprintf(`class="w" x="%d" y="%d"`, at, y+11)
			if at == from {
				place = fmt.Sprintf(`class="w b" x="%d" y="%d"`, at+30, y+13)
			}
			fmt.Fprintf(&b, `<text %s>%s</text>`, place, name)
		}
		left, right = min(left, at), max(right, at)
	}
	mark := "d"
	if s.message.Last || len(s.to) == 0 {
		mark = "e"
	}
	if s.start || mark == "e" {
		fmt.Fprintf(&b, `<circle class="%s" cx="%d" cy="%d" r="4"/>`, mark, from, y)
	}
	middle := (left + right) / 2
	if left != from && right != from { // to both sides: next to the sender
		middle = from + lane/2
	}
	label := clipped(short(s.message.Type), 40)
	if s.by != "" {
		label += " (" + clipped(s.by, 20) + ")"
	}
	place := fmt.Sprintf(`class="n" x="%d" y="%d"`, middle, y-5)
	if left == right { // to no other service: next to the line
		place = fmt.Sprintf(`class="n b" x="%d" y="%d"`, from+10, y-3)
	}
	fmt.Fprintf(&b, `<text %s>%s<title>%s</title></text>`+"\n", place, html.EscapeString(label),
		html.EscapeString(s.message.Type+" on "+s.message.Topic))
	return b.String()
}

func clipped(text string, n int) string {
	if r := []rune(text); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return text
}
