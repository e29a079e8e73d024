package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// Level is the severity of a finding.
type Level string

// These are the levels, the best first.
const (
	OK      Level = "ok"
	Info    Level = "info"    // no action required
	Warning Level = "warning" // works now, and may fail under load or after another fault
	Failure Level = "failure" // stops a part
)

// A Finding is the result of one check.
type Finding struct {
	Name   string `json:"name"` // the name of the check: stable, and not unique
	Level  Level  `json:"level"`
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"` // several lines if it consists of several statements
}

// A Report holds findings in the order of the checks. The zero value is empty.
type Report struct {
	Findings []Finding
}

// MarshalJSON writes {"ok": true, "findings": […]}, with the result of OK.
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

// OK reports whether there is no failure. Warnings do not count.
func (r *Report) OK() bool { return r.Count(Failure) == 0 }

// Count returns how many findings have a level.
func (r *Report) Count(level Level) (n int) {
	for _, f := range r.Findings {
		if f.Level == level {
			n++
		}
	}
	return n
}

// Add appends a finding.
func (r *Report) Add(f Finding) { r.Findings = append(r.Findings, f) }

// Ok adds a finding that requires no action: the check passed.
func (r *Report) Ok(name, found string) { r.Add(Finding{name, OK, found, ""}) }

// Info adds a finding that requires no action: a fact worth knowing.
func (r *Report) Info(name, found string) { r.Add(Finding{name, Info, found, ""}) }

// Warn adds a finding that works now, and may fail under load or after another fault.
func (r *Report) Warn(name, found, remedy string) { r.Add(Finding{name, Warning, found, remedy}) }

// Fail adds a finding that stops a part.
func (r *Report) Fail(name, found, remedy string) { r.Add(Finding{name, Failure, found, remedy}) }

// Text writes the findings for people, one per line, each followed by its remedy. It replaces control characters, which may come
// from a server, since a terminal would interpret them. paint may be nil; it may colour the word of a level.
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
