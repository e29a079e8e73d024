package alert

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// An Incident is an event that needs an operator. Texts that are too long are cut.
type Incident struct {
	Kind    string    // such as "dead letter", "parked row"
	Class   string    // of the failure, if it has one
	Where   string    // the handler, or the topic
	Subject string    // the hop or the service that it belongs to; not part of the cause
	Key     string    // the business key
	ID      string    // of the message
	At      time.Time // zero: now
	Text    string    // the error
}

// An Alert has the last incident of a cause, and the number of incidents.
type Alert struct {
	Incident
	Source  string    // Config.Source
	Count   int       // incidents of this cause since the last alert, this one included
	Since   time.Time // the first of them
	Dropped int       // incidents of other causes, above Config.Causes, since the last alert
}

// Summary returns the whole alert in a line or two.
func (a Alert) Summary() string {
	var b strings.Builder
	if a.Source != "" {
		b.WriteString(a.Source + ": ")
	}
	if a.Count > 1 {
		fmt.Fprintf(&b, "%d × ", a.Count)
	}
	b.WriteString(a.Kind)
	if a.Count > 1 {
		fmt.Fprintf(&b, " since %s, the last one", a.Since.UTC().Format("15:04:05 UTC"))
	}
	for _, part := range []string{a.Where, a.Class, a.Text} {
		if part != "" {
			b.WriteString(": " + part)
		}
	}
	if a.Key != "" {
		b.WriteString("; key " + a.Key)
	}
	if a.ID != "" {
		b.WriteString("; id " + a.ID)
	}
	if a.Dropped > 0 {
		fmt.Fprintf(&b, " (and %d incidents of other causes, more than are counted)", a.Dropped)
	}
	return b.String()
}

// cause is the common part of incidents that are counted together.
type cause struct{ kind, class, where, fingerprint string }

func (i Incident) cause() cause { return cause{i.Kind, i.Class, i.Where, fingerprint(i.Text)} }

// trimmed cuts text from outside to lengths that fit into a body.
func (i Incident) trimmed() Incident {
	for _, field := range []*string{&i.Kind, &i.Class, &i.Where, &i.Subject, &i.Key, &i.ID} {
		*field = cut(line(*field), 200)
	}
	i.Text = cut(line(i.Text), 1000)
	if i.At.IsZero() {
		i.At = time.Now()
	}
	return i
}

var (
	quoted = regexp.MustCompile("\"[^\"]*\"|`[^`]*`|\\B'[^']*'\\B")
	uuids  = regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)
	hex    = regexp.MustCompile(`(?i)\b(0x[0-9a-f]+|[0-9a-f]{8,})\b`)
	digits = regexp.MustCompile(`[0-9]+([.,:][0-9]+)*`)
)

// fingerprint returns the part of an error that does not depend on the message: quoted values, UUIDs, hex and numbers become a
// star.
func fingerprint(text string) string {
	text = quoted.ReplaceAllLiteralString(text, "*")
	text = uuids.ReplaceAllLiteralString(text, "*")
	text = hex.ReplaceAllStringFunc(text, func(word string) string {
		if strings.ContainsAny(word, "0123456789") {
			return "*"
		}
		return word // "defaced" is no hex number
	})
	return cut(digits.ReplaceAllLiteralString(text, "*"), 300)
}

// line returns s as valid text on one line.
func line(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return strings.Join(strings.Fields(s), " ")
}

func cut(s string, limit int) string {
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}
