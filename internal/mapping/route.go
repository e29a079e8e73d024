package mapping

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// A route computes the topic as Kafka Connect's RegexRouter does: if the expression matches the whole value, its first match,
// which may be shorter, is replaced; if not, the value is the topic.
type route struct {
	whole, first *regexp.Regexp
	parts        []part
}

// A part of the replacement is a text or the match of a group.
type part struct {
	text  string
	group int // used if text is empty
}

func newRoute(expression, replacement string) (route, error) {
	if err := onlyJava(expression); err != nil {
		return route{}, fmt.Errorf("route.topic.regex: %q: %w", expression, err)
	}
	first, err := regexp.Compile(expression)
	if err != nil {
		return route{}, fmt.Errorf("route.topic.regex: %w: expressions of Go's kind (RE2) are understood, "+
			"which lack Java's look-around, back references and possessive quantifiers", err)
	}
	r := route{whole: regexp.MustCompile(`\A(?:` + expression + `)\z`), first: first}
	if r.parts, err = parseReplacement(replacement, first); err != nil {
		return route{}, fmt.Errorf("route.topic.replacement: %q: %w", replacement, err)
	}
	return r, nil
}

// onlyJava returns an error for syntax that Go would silently read in another way: classes within classes, and && in them.
func onlyJava(expression string) error {
	inClass, quoted := false, false
	for i := 0; i < len(expression); i++ {
		rest := expression[i:]
		switch {
		case quoted:
			quoted = !strings.HasPrefix(rest, `\E`)
		case rest[0] == '\\':
			quoted = strings.HasPrefix(rest, `\Q`)
			i++
		case !inClass && rest[0] == '[':
			inClass = true
			for _, opening := range []string{"[^]", "[]"} { // in Java, a bracket at the beginning belongs to the class
				if strings.HasPrefix(rest, opening) {
					return errors.New(`a class may not begin with "]": write it as \]`)
				}
			}
		case inClass && rest[0] == '[' && !strings.HasPrefix(rest, "[:"):
			return errors.New("classes within classes are Java's only: write them as one")
		case inClass && strings.HasPrefix(rest, "&&"):
			return errors.New("&& in a class is Java's only: write the class without it")
		case inClass && rest[0] == ']':
			inClass = false
		}
	}
	return nil
}

// parseReplacement reads the syntax of java.util.regex: $1, ${name}, and \ before a literal character.
func parseReplacement(text string, of *regexp.Regexp) ([]part, error) {
	var parts []part
	var literal strings.Builder
	group := func(n int) {
		if literal.Len() > 0 {
			parts = append(parts, part{text: literal.String()})
			literal.Reset()
		}
		parts = append(parts, part{group: n})
	}
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\':
			if i++; i == len(text) {
				return nil, errors.New(`nothing follows the last \`)
			}
			literal.WriteByte(text[i])
		case text[i] != '$':
			literal.WriteByte(text[i])
		case strings.HasPrefix(text[i:], "${"):
			name, _, closed := strings.Cut(text[i+2:], "}")
			n := of.SubexpIndex(name)
			if !closed || n < 0 {
				return nil, fmt.Errorf("the regex has no group %q", name)
			}
			group(n)
			i += len(name) + 2
		default:
			n, size := groupNumber(text[i+1:], of.NumSubexp())
			if n > of.NumSubexp() || size == 0 {
				return nil, fmt.Errorf(`%q is no group of the regex: write \$ for a dollar`, text[i:min(len(text), i+1+max(1, size))])
			}
			group(n)
			i += size
		}
	}
	if literal.Len() > 0 {
		parts = append(parts, part{text: literal.String()})
	}
	return parts, nil
}

// groupNumber reads digits as long as they form the number of a group, but at least one.
func groupNumber(text string, groups int) (n, size int) {
	for size < len(text) && text[size] >= '0' && text[size] <= '9' {
		next := n*10 + int(text[size]-'0')
		if size > 0 && next > groups {
			break
		}
		n, size = next, size+1
	}
	return n, size
}

func (r route) topic(value string) string {
	if !r.whole.MatchString(value) {
		return value
	}
	at := r.first.FindStringSubmatchIndex(value)
	if at == nil {
		return value
	}
	var b strings.Builder
	b.WriteString(value[:at[0]])
	for _, p := range r.parts {
		if p.text != "" {
			b.WriteString(p.text)
		} else if from := at[2*p.group]; from >= 0 {
			b.WriteString(value[from:at[2*p.group+1]])
		}
	}
	b.WriteString(value[at[1]:])
	return b.String()
}

// Topic returns the topic of a row whose column route.by.field has this value.
func (m *Mapping) Topic(value string) string { return m.route.topic(value) }

// TopicPattern returns an expression that matches the topics of all rows. Where route.topic.regex is set, it matches every topic.
func (m *Mapping) TopicPattern() *regexp.Regexp {
	if m.cfg.RouteRegex != (Config{}).defaults().RouteRegex {
		return regexp.MustCompile("")
	}
	expression := ""
	for _, p := range m.route.parts {
		if p.text != "" {
			expression += regexp.QuoteMeta(p.text)
		} else {
			expression += ".+"
		}
	}
	return regexp.MustCompile(`\A` + expression + `\z`)
}
