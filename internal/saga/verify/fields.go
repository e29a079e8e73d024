package verify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/saga"
)

// fields compares the expressions that read events, and that make the fields of messages, with the schemas of these messages.
type fields struct {
	*model
	types   map[string]*expr.Shape
	unknown []string // types without a schema, of which fields are read
	objects map[string]expr.Fields
}

func messageFields(m *model, types map[string]*expr.Shape) { (&fields{model: m, types: types}).look() }

// Unchecked returns the types of events whose fields d reads and whose schema is not in o.Types, sorted: these fields are not checked.
func Unchecked(d *saga.Definition, o Options) []string {
	f := fields{model: &model{d: d, s: d.Spec(), said: make(map[string]bool)}, types: o.Types}
	for i, st := range f.s.Steps {
		f.steps = append(f.steps, node{Step: st, path: fmt.Sprintf("steps[%d]", i)})
	}
	f.look()
	slices.Sort(f.unknown)
	return slices.Compact(f.unknown)
}

func (f *fields) look() {
	for i, s := range f.s.Start {
		f.objects = nil
		f.event(fmt.Sprintf("start[%d]", i), saga.Answer{Event: s.Event, When: s.When, Set: s.Set})
	}
	f.objects = map[string]expr.Fields{
		"data": expr.Fields(f.s.Data), "saga": {"id": expr.String, "key": expr.String, "reason": expr.String, "compensated": expr.Any},
	}
	for _, n := range f.steps {
		if n.Command != nil {
			f.message(n.path+".command.input", n.Command.Type, n.Command.Input, n.ForEach)
		}
		f.answers(n.path+".success", n.Success, n.ForEach)
		f.answers(n.path+".failure", n.Failure, n.ForEach)
		if c := n.Compensation; c != nil {
			if c.Command != nil {
				f.message(n.path+".compensation.command.input", c.Command.Type, c.Command.Input, n.ForEach)
			}
			f.answers(n.path+".compensation.success", c.Success, n.ForEach)
		}
	}
	for i, e := range f.s.Ends {
		f.emits(fmt.Sprintf("ends[%d].emit", i), e.Emit)
	}
	if c := f.s.Cancel; c != nil {
		f.answers("cancel.events", c.Events, nil)
		f.emits("cancel.refused", c.Refused)
	}
	f.emits("completed", f.s.Completed)
	f.emits("compensated", f.s.Compensated)
	f.objects["deadline"] = nil
	for i, d := range f.s.Deadlines {
		f.emits(fmt.Sprintf("deadlines[%d].emit", i), d.Emit)
	}
}

func (f *fields) answers(path string, as []saga.Answer, each *saga.ForEach) {
	for i, a := range as {
		f.eventOf(fmt.Sprintf("%s[%d]", path, i), a, each)
	}
}

func (f *fields) emits(path string, es []saga.Emit) {
	for i, e := range es {
		f.message(fmt.Sprintf("%s[%d].input", path, i), e.Event, e.Input, nil)
	}
}

func (f *fields) event(path string, a saga.Answer) { f.eventOf(path, a, nil) }

// eventOf checks the expressions of an answer.
func (f *fields) eventOf(path string, a saga.Answer, each *saga.ForEach) {
	shape := f.types[a.Event]
	reads := a.By != nil
	check := func(at string, want expr.Type) {
		x := f.d.Expr(at)
		if x == nil || !slices.ContainsFunc(x.Uses(), func(u expr.Use) bool { return u.Object == "event" }) && !readsEvent(x) {
			return
		}
		if reads = true; shape != nil {
			f.read(at, a.Event, shape, x, want, each)
		}
	}
	check(path+".when", expr.Bool)
	for _, name := range sortedKeys(a.Set) {
		check(path+".set."+name, f.s.Data[name])
	}
	check(path+".reason", expr.String)
	switch {
	case shape == nil && reads:
		f.unknown = append(f.unknown, a.Event)
	case shape != nil && shape.Fields != nil && a.By != nil && !has(shape, a.By.Field):
		f.lacks(path+".by.field", a.Event, expr.Unknown{Object: "event", Field: a.By.Field, Shape: shape})
	}
}

func has(s *expr.Shape, name string) bool {
	_, has := s.Fields[name]
	return has
}

func readsEvent(x *expr.Expr) bool {
	return slices.ContainsFunc(x.Reads(), func(r expr.Read) bool { return r.Object == "event" })
}

// read checks an expression that reads an event.
func (f *fields) read(path, typ string, shape *expr.Shape, x *expr.Expr, want expr.Type, each *saga.ForEach) {
	unknown, whole := x.Unknown("event", shape)
	for _, u := range unknown {
		f.lacks(path, typ, u)
	}
	if len(unknown) > 0 || shape.Fields == nil {
		return
	}
	if wrong := x.Misused("event", shape); wrong != "" {
		f.report("message-field", path, nil, "%q can fail: by the schema of %s %s; correct the expression, or the schema", x.Text(), typ, wrong)
		return
	}
	if is := f.resultOf(x, shape, want); is != "" {
		f.report("message-field", path, nil, "%q is %s, by the schema of %s, want %s; correct the expression, or the schema", x.Text(), is, typ, want)
		return
	}
	if !strings.HasSuffix(path, ".reason") { // a reason that fails is left out
		f.empty(path, typ, shape, x, want)
	}
	if whole || x.HasNull() { // a text that is compared with null is no text for CEL's check, and fails in no event
		return
	}
	if err := f.typed(shape, x, want, each); err != nil {
		f.report("message-field", path, nil, "%s, by the schema of %s; correct the expression, or the schema", err, typ)
	}
}

// typed returns an error if an expression fails for each event of the shape, since it takes values of one type for another. Whole numbers
// and others may be mixed in an expression that reads events, so the integers of the event are looked at apart: where they are compared
// with a text, and where one is the result.
func (f *fields) typed(shape *expr.Shape, x *expr.Expr, want expr.Type, each *saga.ForEach) error {
	exact, loose := map[string]expr.Fields{"event": shape.Top()}, map[string]expr.Fields{"event": shape.Top()}
	maps.Copy(exact, f.objects)
	maps.Copy(loose, f.objects)
	for name, is := range loose["event"] {
		if is == expr.Int {
			loose["event"][name] = expr.Any
		}
	}
	if err := compiles(loose, x.Text(), want, each); err != nil {
		return err
	}
	for _, b := range x.Bounds() {
		if _, text := b.Value.(string); text && b.Object == "event" && exact["event"][b.Field] == expr.Int {
			return fmt.Errorf("%q compares event.%s, which is of type int, with a text", x.Text(), b.Field)
		}
	}
	if compiles(exact, x.Text(), expr.Any, each) != nil {
		return nil
	}
	return compiles(exact, x.Text(), want, each)
}

// message checks the fields that a mapping gives a message.
func (f *fields) message(path, typ string, m saga.Mapping, each *saga.ForEach) {
	shape := f.types[typ]
	if shape == nil || shape.Fields == nil {
		return
	}
	for _, name := range sortedKeys(m) {
		if !has(shape, name) {
			f.lacks(path+"."+name, typ, expr.Unknown{Field: name, Shape: shape})
			continue
		}
		if err := f.given(shape.Fields[name], m[name], each); err != nil {
			f.report("message-field", path+"."+name, nil, "%s: so the schema of %s declares %s; correct it, or the schema", err, typ, name)
		}
	}
	for _, name := range shape.Required {
		if _, sets := m[name]; !sets {
			f.report("message-field", path, nil, "the schema of %s requires the field %s, which the input does not set: set it, or give it a default", typ, name)
		}
	}
}

// given returns an error if an expression's value cannot be the value of a field.
func (f *fields) given(field *expr.Shape, text string, each *saga.ForEach) error {
	switch {
	case field == nil || field.Null && strings.TrimSpace(text) == "null":
		return nil
	case field.Number:
		return compiles(f.objects, text, expr.Double, each)
	}
	return compiles(f.objects, text, cmp.Or(field.Type, expr.Any), each)
}

// compiles returns an error if the text is not of the type. A whole number is a double too.
func compiles(objects map[string]expr.Fields, text string, want expr.Type, each *saga.ForEach) error {
	env, err := expr.NewEnv(objects)
	if err == nil && each != nil {
		env, err = env.With(map[string]expr.Type{each.As: expr.Any, "index": expr.Int})
	}
	if err == nil {
		_, err = env.Compile(text, want)
	}
	if err != nil && want == expr.Double {
		return compiles(objects, text, expr.Int, each)
	}
	return err
}

// lacks reports a field that a message does not have, with the fields that it has.
func (f *fields) lacks(path, typ string, u expr.Unknown) {
	names := sortedKeys(u.Shape.Fields)
	if close := closest(u.Field, names); close != "" {
		names = []string{close}
	} else if len(names) > maxNames {
		names = append(names[:maxNames:maxNames], "…")
	}
	of := typ
	if inner, below := strings.CutPrefix(u.Object, "event."); below {
		of = inner + " of " + typ
	}
	f.report("message-field", path, nil, "the schema of %s has no field %s, but %s; correct the name, or add the field to the schema",
		of, u.Field, strings.Join(names, ", "))
}

// maxNames limits the fields that a finding names.
const maxNames = 8

// closest returns the one name that equals name but for case, underscores and at most two letters; "" if none does, or several do.
func closest(name string, names []string) (best string) {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }
	least := 3
	for _, other := range names {
		switch d := distance(plain(name), plain(other)); {
		case d < least && d < len(name):
			best, least = other, d
		case d == least:
			best = ""
		}
	}
	return best
}

// distance returns the number of letters to insert, remove or replace (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			next := diagonal
			if a[i] != b[j] {
				next = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
