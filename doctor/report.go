package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// Level says how bad a finding is.
type Level string

// The levels, the best first.
const (
	OK      Level = "ok"
	Info    Level = "info"    // nothing to act on
	Warning Level = "warning" // works now, and will not on a bad day
	Failure Level = "failure" // stops something
)

// A Finding is one thing that was looked at.
type Finding struct {
	Name   string `json:"name"` // what was looked at: stable, and not unique
	Level  Level  `json:"level"`
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"` // what to do; several lines where it is several statements
}

// A Report is what was found, in the order in which it was looked at. The zero value is an empty one.
type Report struct {
	Findings []Finding
}

// MarshalJSON writes {"ok": true, "findings": […]}, where ok is what OK says.
func (r *Report) MarshalJSON() ([]byte, error) {
	findings := r.Findings
	if findings == nil {
		findings = []Finding{}
	}
	return json.Marshal(struct {
		OK       bool      `json:"ok"`
		Findings []Finding `json:"findings"`
	}{r.OK(), findings})
}

// OK says that nothing was found that stops anything. Warnings do not count.
func (r *Report) OK() bool { return r.Count(Failure) == 0 }

// Count is how many findings have a level.
func (r *Report) Count(level Level) (n int) {
	for _, f := range r.Findings {
		if f.Level == level {
			n++
		}
	}
	return n
}

// Add puts a finding behind the others.
func (r *Report) Add(f Finding) { r.Findings = append(r.Findings, f) }

// Ok adds what is well.
func (r *Report) Ok(name, found string) { r.Add(Finding{name, OK, found, ""}) }

// Info adds what is worth knowing.
func (r *Report) Info(name, found string) { r.Add(Finding{name, Info, found, ""}) }

// Warn adds what a bad day makes a failure of.
func (r *Report) Warn(name, found, remedy string) { r.Add(Finding{name, Warning, found, remedy}) }

// Fail adds what stops something.
func (r *Report) Fail(name, found, remedy string) { r.Add(Finding{name, Failure, found, remedy}) }

// Text writes the findings for people, a line each and the remedy below it. What servers say is written without what a
// terminal would act on. Paint, if there is one, may colour the word of a level.
func (r *Report) Text(to io.Writer, paint func(Level, string) string) error {
	var b strings.Builder
	for _, f := range r.Findings {
		word := fmt.Sprintf("%-8s", f.Level)
		if paint != nil {
			word = paint(f.Level, word)
		}
		fmt.Fprintf(&b, "%s %-12s %s\n", word, f.Name, printable(f.Found))
		for n, line := range strings.Split(f.Remedy, "\n") {
			mark := "→"
			if n > 0 {
				mark = " "
			}
			if line != "" {
				fmt.Fprintf(&b, "%-21s %s %s\n", "", mark, printable(line))
			}
		}
	}
	_, err := io.WriteString(to, b.String())
	return err
}

func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return '\uFFFD'
		}
		return r
	}, text)
}
