package verify

import (
	"fmt"
	"regexp"

	"github.com/troupe-go/troupe/saga"
)

// unordered matches dates that are not in the order of their texts: with the day or the month first, or without leading zeros.
var unordered = regexp.MustCompile(`^(\d{1,2}[./-]\d{1,2}[./-](\d{4}|\d{2})|\d{4}[./-](\d[./-]\d{1,2}|\d{2}[./-]\d))$`)

// dates finds conditions that compare dates as texts out of their order.
func dates(m *model) {
	check := func(path string) {
		x := m.d.Expr(path)
		if x == nil {
			return
		}
		for _, b := range x.Bounds() {
			if text, is := b.Value.(string); is && b.Ordered && unordered.MatchString(text) {
				m.report("date-order", path, nil, "%q compares texts letter by letter, which is not the order of dates such as '%s': "+
					"let %s.%s have the year first, and two digits for month and day, as in '2026-12-09'", x.Text(), text, b.Object, b.Field)
			}
		}
	}
	answers := func(path string, as []saga.Answer) {
		for i := range as {
			check(fmt.Sprintf("%s[%d].when", path, i))
		}
	}
	for i := range m.s.Start {
		check(fmt.Sprintf("start[%d].when", i))
	}
	for _, n := range m.steps {
		check(n.path + ".when")
		answers(n.path+".success", n.Success)
		answers(n.path+".failure", n.Failure)
	}
	for i := range m.s.Ends {
		check(fmt.Sprintf("ends[%d].when", i))
	}
	if m.s.Cancel != nil {
		answers("cancel.events", m.s.Cancel.Events)
	}
}
