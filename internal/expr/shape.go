package expr

import (
	"slices"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
)

// A Shape describes the values of a message, or of a part of it, as its schema declares them. The zero Shape, and nil, is any value.
type Shape struct {
	// Type is the type of a value that has no parts; "" is the same as Any.
	Type Type
	// Number reports that the value is a number, whole or not; then Type is "".
	Number bool
	// Null reports that the value may be null, and Absent that an object may lack it.
	Null, Absent bool
	// Fields has the fields of an object that has no others; nil: the value is no object, or its fields are not known.
	Fields map[string]*Shape
	// Required lists the fields without which the object is refused when it is written.
	Required []string
	// Elements describes the elements of a list, Values the values of a map that may have any keys.
	Elements, Values *Shape
}

// Top returns the fields with their types, for an Env: Any for one that may be null, and for numbers that are not whole, with which an
// expression that reads events may mix whole ones.
func (s *Shape) Top() Fields {
	fields := make(Fields, len(s.Fields))
	for name, f := range s.Fields {
		fields[name] = Any
		if f != nil && f.Type != "" && f.Type != Double && !f.Null {
			fields[name] = f.Type
		}
	}
	return fields
}

// At returns the shape of a field by the names on the way to it, which have the keys of maps, and leave out the indexes of lists; nil if it is
// not known.
func (s *Shape) At(names []string) *Shape {
	for _, name := range names {
		for s != nil && s.Elements != nil {
			s = s.Elements
		}
		switch {
		case s == nil:
			return nil
		case s.Values != nil:
			s = s.Values
		default:
			s = s.Fields[name]
		}
	}
	return s
}

// An Unknown is a field that an expression names and that the shape of its object does not have.
type Unknown struct {
	// Object is the path of the object, such as event or event.address, and Field the name.
	Object, Field string
	// Shape is the object's, with the fields that it has.
	Shape *Shape
}

// Unknown returns the fields that the expression names below the object, also in has(), and that the shape does not have. whole reports
// that it uses the object otherwise than by its fields, such as in event['id'].
func (x *Expr) Unknown(object string, shape *Shape) (all []Unknown, whole bool) {
	l := lookup{bound: map[string]place{object: {shape: shape, path: object}}, object: object}
	l.walk(x.ast.NativeRep().Expr())
	return l.all, l.whole
}

// Results returns the shapes of the values that the expression may have, of which ?: chooses one, as far as they are parts of the object of
// that shape.
func (x *Expr) Results(object string, shape *Shape) (all []*Shape) {
	l := lookup{bound: map[string]place{object: {shape: shape, path: object}}, object: object}
	var add func(ast.Expr)
	add = func(e ast.Expr) {
		if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Conditional {
			add(e.AsCall().Args()[1])
			add(e.AsCall().Args()[2])
		} else if at := l.walk(e); at.shape != nil && at.path != "" {
			all = append(all, at.shape)
		}
	}
	add(x.ast.NativeRep().Expr())
	return all
}

// Named returns the fields of the shape that the expression names, also in has(): each by the names on the way to it, with the keys of maps, or *,
// and without the indexes of lists.
func (x *Expr) Named(object string, shape *Shape) (all [][]string) {
	l := lookup{bound: map[string]place{object: {shape: shape, path: object}}, object: object}
	l.walk(x.ast.NativeRep().Expr())
	for _, at := range l.named {
		all = append(all, strings.Split(withoutIndexes.Replace(strings.TrimPrefix(at.path, object+".")), "."))
	}
	return all
}

func literalShape(e ast.Expr) *Shape {
	switch literalOf(e).(type) {
	case string:
		return &Shape{Type: String}
	case bool:
		return &Shape{Type: Bool}
	case int64, float64:
		return &Shape{Number: true}
	}
	return nil
}

var withoutIndexes = strings.NewReplacer("[]", "", "[*]", ".*")

// A place is a value in an expression with its path; its shape is nil if it is not known.
type place struct {
	shape *Shape
	path  string
	or    *place // another value that it may be
}

type lookup struct {
	object string
	bound  map[string]place // by identifier: the object, and the variables of macros
	all    []Unknown
	named  []place
	whole  bool
	// misused says what is wrong with the operands of an operator; "": nothing.
	misused string
}

// walk looks up the fields in e, and returns the value of e.
func (l *lookup) walk(e ast.Expr) (at place) {
	switch e.Kind() {
	case ast.IdentKind:
		l.whole = l.whole || e.AsIdent() == l.object && l.bound[l.object].path == l.object
		return l.bound[e.AsIdent()]
	case ast.SelectKind:
		at = l.field(l.operand(e.AsSelect().Operand()), e.AsSelect().FieldName())
		if e.AsSelect().IsTestOnly() {
			return place{shape: &Shape{Type: Bool}}
		}
		return at
	case ast.CallKind:
		c := e.AsCall()
		if c.FunctionName() == operators.Index {
			return l.element(l.walk(c.Args()[0]), c.Args()[1])
		}
		return l.call(c)
	case ast.LiteralKind:
		return place{shape: literalShape(e)}
	case ast.ListKind:
		for _, element := range e.AsList().Elements() {
			l.walk(element)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			l.walk(entry.AsMapEntry().Key())
			l.walk(entry.AsMapEntry().Value())
		}
	case ast.ComprehensionKind:
		l.comprehension(e.AsComprehension())
	}
	return place{}
}

// operand is walk for the value whose field is selected.
func (l *lookup) operand(e ast.Expr) place {
	if e.Kind() == ast.IdentKind {
		return l.bound[e.AsIdent()]
	}
	return l.walk(e)
}

func (l *lookup) field(of place, name string) place {
	switch {
	case of.shape == nil:
		return place{}
	case of.shape.Fields != nil:
		f, has := of.shape.Fields[name]
		if u := (Unknown{of.path, name, of.shape}); !has && !slices.ContainsFunc(l.all, func(o Unknown) bool { return o.Object == u.Object && o.Field == u.Field }) {
			l.all = append(l.all, u)
		}
		at := place{shape: f, path: of.path + "." + name}
		if has && !slices.Contains(l.named, at) {
			l.named = append(l.named, at)
		}
		return at
	}
	return place{shape: of.shape.Values, path: of.path + "." + name}
}

func (l *lookup) element(of place, index ast.Expr) place {
	l.walk(index)
	if of.shape == nil {
		return place{}
	}
	if name, is := literalOf(index).(string); is {
		return l.field(of, name)
	}
	if of.shape.Elements != nil {
		return place{shape: of.shape.Elements, path: of.path + "[]"}
	}
	return place{shape: of.shape.Values, path: of.path + "[*]"} // of a key that is not known
}

// comprehension binds the variable of a macro to the elements of its list. The macros iterate over the keys of a map.
func (l *lookup) comprehension(c ast.ComprehensionExpr) {
	list := l.walk(c.IterRange())
	names := []string{c.IterVar(), c.AccuVar()}
	if c.IterVar2() != "" {
		names = append(names, c.IterVar2())
	}
	before := make([]place, len(names))
	for i, name := range names {
		before[i] = l.bound[name]
		l.bound[name] = place{}
	}
	if list.shape != nil && list.shape.Elements != nil && c.IterVar2() == "" {
		l.bound[c.IterVar()] = place{shape: list.shape.Elements, path: list.path + "[]"}
	}
	for _, part := range []ast.Expr{c.LoopCondition(), c.LoopStep()} {
		l.walk(part)
	}
	l.bound[names[0]] = before[0]
	l.walk(c.AccuInit())
	l.walk(c.Result())
	for i, name := range names {
		l.bound[name] = before[i]
	}
}
