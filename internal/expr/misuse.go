package expr

import (
	"fmt"
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// Misused returns the first operand whose type does not fit its operator, and why; "" for none. It knows the types of the object's fields from
// shape, and the types that follow from them: if event.name is a text, it reports event.name + 1. It reports a value of ?: also if only
// one of the two does not fit. It does not look at the operands of ==, != and in.
func (x *Expr) Misused(object string, shape *Shape) string {
	l := lookup{bound: map[string]place{object: {shape: shape, path: object}}, object: object}
	l.walk(x.ast.NativeRep().Expr())
	return l.misused
}

// HasNull reports whether the expression has null as a literal.
func (x *Expr) HasNull() (has bool) {
	ast.PreOrderVisit(x.ast.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		has = has || e.Kind() == ast.LiteralKind && e.AsLiteral() == types.NullValue
	}))
	return has
}

// A class groups the types that an operator treats alike; "" is not known.
type class string

const (
	aNumber  class = "a number"
	aText    class = "a text"
	aTruth   class = "true or false"
	aList    class = "a list"
	anObject class = "an object"
)

func (s *Shape) class() class {
	switch {
	case s == nil:
		return ""
	case s.Fields != nil, s.Values != nil:
		return anObject
	case s.Elements != nil:
		return aList
	case s.Number, s.Type == Int, s.Type == Double:
		return aNumber
	case s.Type == String:
		return aText
	case s.Type == Bool:
		return aTruth
	}
	return ""
}

// call looks up the fields in a call of an operator or a function, and returns its result.
func (l *lookup) call(c ast.CallExpr) place {
	if c.IsMemberFunction() {
		l.walk(c.Target())
	}
	args := make([]place, len(c.Args()))
	for i, arg := range c.Args() {
		args[i] = l.walk(arg)
	}
	switch name := c.FunctionName(); name {
	case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot:
		l.want(aTruth, args...)
		return place{shape: &Shape{Type: Bool}}
	case operators.Conditional:
		l.want(aTruth, args[0])
		return either(args[1], args[2])
	case operators.Equals, operators.NotEquals, operators.In:
		return place{shape: &Shape{Type: Bool}}
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		l.same("compared", args, aNumber, aText, aTruth)
		return place{shape: &Shape{Type: Bool}}
	case operators.Add:
		return place{shape: like(l.same("added", args, aNumber, aText, aList))}
	case operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo, operators.Negate:
		return place{shape: like(l.same("calculated", args, aNumber))}
	}
	return place{}
}

// either returns a value that may be a or b.
func either(a, b place) place {
	var last *place
	for _, side := range []place{b, a} {
		known := false
		for p := range side.all {
			last, known = &place{p.shape, p.path, last}, true
		}
		if !known {
			last = &place{shape: &Shape{}, or: last}
		}
	}
	return place{or: last}
}

// all yields each known value that p may be.
func (p place) all(yield func(place) bool) {
	for at := &p; at != nil; at = at.or {
		if at.shape != nil && !yield(*at) {
			return
		}
	}
}

// like returns the shape of a computed number, text or truth value; nil for another class.
func like(c class) *Shape {
	switch c {
	case aNumber:
		return &Shape{Number: true}
	case aText:
		return &Shape{Type: String}
	case aTruth:
		return &Shape{Type: Bool}
	}
	return nil
}

// want records an operand that is not of a class.
func (l *lookup) want(c class, operands ...place) {
	for _, o := range operands {
		for p := range o.all {
			if is := p.shape.class(); is != "" && is != c {
				l.wrong("%s is %s, want %s", p, is, c)
			}
		}
	}
}

// same records operands that are not of one of the classes, or of different ones. It returns the class of the result; "": it is not known.
func (l *lookup) same(what string, operands []place, allowed ...class) (of class) {
	unknown := false
	var first place // which has the class
	for _, o := range operands {
		n := 0
		for p := range o.all {
			n++
			switch is := p.shape.class(); {
			case is == "":
				unknown = true
			case !slices.Contains(allowed, is):
				l.wrong("%s is %s, which cannot be %s", p, is, what)
			case of == "":
				of, first = is, p
			case is != of && p.path == "":
				l.wrong("%s is %s, which cannot be "+what+" with %s", first, of, is)
			case is != of:
				l.wrong("%s is %s, which cannot be "+what+" with %s", p, is, of)
			}
		}
		unknown = unknown || n == 0
	}
	if unknown {
		return ""
	}
	return of
}

func (l *lookup) wrong(format string, o place, args ...any) {
	if l.misused == "" {
		l.misused = fmt.Sprintf(format, append([]any{o}, args...)...)
	}
}

// String names a value in an error.
func (p place) String() string {
	if p.path == "" {
		return "a part of the expression"
	}
	return p.path
}
