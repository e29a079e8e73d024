package saga

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/troupe-go/troupe/internal/expr"
)

// A Form declares the fields of an event that an operator may give instead of the event's hop. The expressions of the answer may read
// no other fields.
type Form struct {
	// Title names the event for people. Default: the event's type.
	Title  string  `json:"title,omitempty"`
	Fields []Field `json:"fields,omitempty"`
}

// A Field is a field of a Form.
type Field struct {
	Name string `json:"name"`
	// Type is String, Int, Double or Bool.
	Type Type `json:"type"`
	// Title names the field for people. Default: Name.
	Title string `json:"title,omitempty"`
	// Optional lets the operator leave the field out. Expressions must test has(event.name) before they read it.
	Optional bool `json:"optional,omitempty"`
	// Min and Max limit the value of an Int or a Double, and the number of characters of a String. Without Max, a String has at most
	// 1,000 characters. The largest Max of a String is 10,000.
	Min *int64 `json:"min,omitempty"`
	Max *int64 `json:"max,omitempty"`
	// OneOf lists the values that a String may have. Default: any.
	OneOf []string `json:"oneOf,omitempty"`
	// Personal hides the value in histories and in the logs of programs. The log of the saga has the value, as it has each field of an
	// event, since the decision depends on it.
	Personal bool `json:"personal,omitempty"`
}

// These are the limits of a form.
const (
	maxFormFields = 32
	maxChoices    = 100
	maxTitle      = 200
	shortText     = 1000   // the default of Max for a String
	longText      = 10_000 // the largest Max for a String
)

var formField = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// form is a Form with the event and the hop of the answer that has it.
type form struct {
	*Form
	event, hop string
}

// form checks the form of an answer of st, and adds the form to st.forms.
func (c *compiler) form(path string, a Answer, st *step) {
	if a.Form == nil {
		return
	}
	if st.Name == "" || st.send != nil || st.Compensation != nil {
		c.wrong(path, "only an event that a step awaits, without a command, may have a form")
		return
	}
	if !c.compiles(path, 0) {
		return
	}
	if slices.ContainsFunc(st.forms, func(f form) bool { return f.event == a.Event }) {
		c.wrong(path, "%s has a form in this step already: leave this one out", a.Event)
	}
	st.forms = append(st.forms, form{a.Form, a.Event, a.Hop})
	c.title(path+".title", a.Form.Title)
	if len(a.Form.Fields) > maxFormFields {
		c.wrong(path+".fields", "%d fields: at most %d", len(a.Form.Fields), maxFormFields)
		return
	}
	for i, f := range a.Form.Fields {
		c.formField(fmt.Sprintf("%s.fields[%d]", path, i), f, a.Form.Fields[:i])
	}
}

func (c *compiler) formField(path string, f Field, before []Field) {
	if !formField.MatchString(f.Name) {
		c.wrong(path+".name", "%q: want letters, digits and underscores", f.Name)
	}
	if slices.ContainsFunc(before, func(b Field) bool { return b.Name == f.Name }) {
		c.wrong(path+".name", "there are two fields %q", f.Name)
	}
	switch f.Type {
	case String, Int, Double, Bool:
	default:
		c.wrong(path+".type", "type %q: want string, int, double or bool", f.Type)
	}
	c.title(path+".title", f.Title)
	switch least, most := f.limits(); {
	case f.Type == Bool && (f.Min != nil || f.Max != nil):
		c.wrong(path, "a bool has no limits: leave min and max out")
	case f.Type == String && (least < 0 || most < 1 || most > longText):
		c.wrong(path, "want 0 to %d characters for min, and 1 to %d for max", longText, longText)
	case f.Min != nil && f.Max != nil && *f.Min > *f.Max, f.Type == String && least > most:
		c.wrong(path+".min", "%d is more than max", least)
	}
	if len(f.OneOf) == 0 {
		return
	}
	if f.Type != String || f.Min != nil || f.Max != nil {
		c.wrong(path+".oneOf", "only a string without min and max has a list of values")
	}
	if len(f.OneOf) > maxChoices {
		c.wrong(path+".oneOf", "%d values: at most %d", len(f.OneOf), maxChoices)
		return
	}
	for i, one := range f.OneOf {
		if one == "" || !plainText(one) || utf8.RuneCountInString(one) > maxTitle || slices.Contains(f.OneOf[:i], one) {
			c.wrong(fmt.Sprintf("%s.oneOf[%d]", path, i), "want a text of 1 to %d characters on one line, listed once", maxTitle)
		}
	}
}

func (c *compiler) title(path, text string) {
	if !plainText(text) || utf8.RuneCountInString(text) > maxTitle {
		c.wrong(path, "want at most %d characters on one line", maxTitle)
	}
}

// plainText reports whether text has only printable characters.
func plainText(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// formReads checks the expressions of step i's answers whose event has a form: they may read only the fields of the form.
func (c *compiler) formReads(path string, i int, data map[string]expr.Fields) {
	st := c.d.steps[i]
	for _, list := range []struct {
		name string
		as   []Answer
	}{{".success", st.Success}, {".failure", st.Failure}} {
		for k, a := range list.as {
			f := st.formOf(a.Event)
			if f == nil || f.hop != a.Hop {
				continue
			}
			fields := make(expr.Fields, len(f.Fields))
			for _, one := range f.Fields {
				fields[one.Name] = one.Type
			}
			c.reads(fmt.Sprintf("%s%s[%d]", path, list.name, k), &body{name: a.Event, fields: fields}, data, a)
		}
	}
}

// formOf returns the form of an event, or nil if the event has none.
func (st *step) formOf(event string) *form {
	if i := slices.IndexFunc(st.forms, func(f form) bool { return f.event == event }); i >= 0 {
		return &st.forms[i]
	}
	return nil
}

// limits returns Min and Max, with defaults if they are not set: 0, and shortText. The defaults are valid only for a String, whose limits
// are numbers of characters. For an Int or a Double the caller must test whether Min or Max is set.
func (f Field) limits() (least, most int64) {
	if f.Min != nil {
		least = *f.Min
	}
	if f.Max != nil {
		return least, *f.Max
	}
	return least, shortText
}

// check converts each value to the type of its field. If a field has no valid value, or the form has no such field, the error names the
// field.
func (f Form) check(fields map[string]any) (map[string]any, error) {
	values := make(map[string]any, len(fields))
	for _, one := range f.Fields {
		v, given := fields[one.Name]
		if !given || v == nil || v == "" && one.Optional {
			if !one.Optional {
				return nil, fmt.Errorf("%s: want a value of type %s", one.Name, one.Type)
			}
			continue
		}
		v, err := one.check(v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.Name, err)
		}
		values[one.Name] = v
	}
	for _, name := range sortedKeys(fields) {
		if !slices.ContainsFunc(f.Fields, func(one Field) bool { return one.Name == name }) {
			return nil, fmt.Errorf("%.60q: the form has no such field", name)
		}
	}
	return values, nil
}

func (f Field) check(v any) (any, error) {
	v, err := whole(v)
	if err != nil {
		return nil, err
	}
	v, is := valueOf(f.Type, v)
	if !is {
		return nil, fmt.Errorf("want a value of type %s", f.Type)
	}
	least, most := f.limits()
	switch v := v.(type) {
	case string:
		n := int64(utf8.RuneCountInString(v))
		switch {
		case !utf8.ValidString(v) || strings.Contains(v, "\x00"):
			return nil, errors.New("want text in UTF-8 without the character NUL")
		case len(f.OneOf) > 0 && !slices.Contains(f.OneOf, v):
			return nil, fmt.Errorf("want one of %s", strings.Join(f.OneOf, ", "))
		case v == "":
			return nil, errors.New("want a value of type string")
		case n < least:
			return nil, fmt.Errorf("%d characters: want at least %d", n, least)
		case len(f.OneOf) == 0 && n > most:
			return nil, fmt.Errorf("%d characters: want at most %d", n, most)
		}
	case int64:
		if f.Min != nil && v < least {
			return nil, fmt.Errorf("%d: want at least %d", v, least)
		}
		if f.Max != nil && v > most {
			return nil, fmt.Errorf("%d: want at most %d", v, most)
		}
	case float64:
		if f.Min != nil && v < float64(least) {
			return nil, fmt.Errorf("%v: want at least %d", v, least)
		}
		if f.Max != nil && v > float64(most) {
			return nil, fmt.Errorf("%v: want at most %d", v, most)
		}
	}
	return v, nil
}

// actAnswer applies to step i an event that an operator gives. The event has the same effect as if its hop had sent it, with one
// exception: an event that the definition cannot use is refused, and does not park the saga.
func (x *decision) actAnswer(i int, e Event) {
	st, ss := x.d.steps[i], &x.s.Steps[i]
	f := st.formOf(e.Type)
	switch {
	case len(st.forms) == 0:
		x.refuse("step %s declares no form: an operator cannot answer it", ss.Name)
	case f == nil:
		x.refuse("step %s has no form for the event %.60q: want %s", ss.Name, e.Type, strings.Join(st.formEvents(), " or "))
	case ss.Phase == StepWaiting:
		x.refuse("step %s has not begun: it awaits no answer yet", ss.Name)
	case ss.Phase == Refused && ss.Answer == "":
		x.refuse("no answer to step %s came in time, and the step is refused: nothing was changed", ss.Name)
	case ss.Phase != Intent && ss.Answer != "":
		x.refuse("step %s was answered before, with %s: nothing was changed", ss.Name, ss.Answer)
	case ss.Phase != Intent:
		x.refuse("step %s is %s: it awaits no answer any more", ss.Name, phaseText(ss.Phase))
	default:
		fields, err := f.check(e.Fields)
		if err == nil {
			e.Hop, e.Fields, e.Key = f.hop, fields, nil
			err = x.usable(i, e)
		}
		if err != nil {
			x.refuse("%s: %s", e.Type, err)
			return
		}
		x.observe(i, e)
	}
}

// usable returns an error if no answer of step i accepts e, or if an expression of the answer fails with the fields of e.
func (x *decision) usable(i int, e Event) error {
	for _, as := range [][]*answer{x.d.steps[i].success, x.d.steps[i].failure} {
		a, err := x.match(i, as, e)
		if err != nil {
			return err
		}
		if a != nil {
			_, err := x.outputs(i, a, e)
			return err
		}
	}
	return fmt.Errorf("no answer of step %s accepts these values: their conditions (when) are false", x.s.Steps[i].Name)
}

// formEvents returns the types of the events that have a form in st.
func (st *step) formEvents() (names []string) {
	for _, f := range st.forms {
		names = append(names, f.event)
	}
	return names
}
