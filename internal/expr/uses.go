package expr

import (
	"cmp"
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
)

// A Use is a value that an expression uses: an object, a field of it, or a field within that. Path names the fields, without indexes:
// passengers.name for event.passengers[0].name; it is empty for the whole object.
type Use struct {
	Object, Path string
	// Copied reports that the value is the result, or a part of it under the path At. Otherwise the result is computed from the value.
	Copied bool
	At     string
}

// Uses returns the values that the expression uses, each use once. It leaves out tests with has(), and comparisons with an empty text or null.
func (x *Expr) Uses() []Use {
	u := uses{bound: make(map[string]Use), results: make(map[string]bool)}
	u.walk(x.ast.NativeRep().Expr(), true, "")
	return u.all
}

type uses struct {
	bound   map[string]Use  // by the variable of a macro, such as map: the list that the macro iterates over
	results map[string]bool // variables in which macros collect their results
	all     []Use
}

func (u *uses) walk(e ast.Expr, copied bool, at string) {
	if use, is := u.useOf(e); is {
		if u.results[use.Object] {
			return
		}
		use.Copied, use.At = copied, at
		if !slices.Contains(u.all, use) {
			u.all = append(u.all, use)
		}
		u.indexes(e)
		return
	}
	switch e.Kind() {
	case ast.SelectKind:
		if !e.AsSelect().IsTestOnly() {
			u.walk(e.AsSelect().Operand(), copied, at)
		}
	case ast.CallKind:
		u.call(e.AsCall(), copied, at)
	case ast.ListKind:
		for _, element := range e.AsList().Elements() {
			u.walk(element, copied, at)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			u.walk(entry.AsMapEntry().Key(), false, at)
			name, _ := literalOf(entry.AsMapEntry().Key()).(string)
			u.walk(entry.AsMapEntry().Value(), copied, join(at, name))
		}
	case ast.ComprehensionKind:
		u.comprehension(e.AsComprehension(), copied, at)
	}
}

func (u *uses) call(c ast.CallExpr, copied bool, at string) {
	args := c.Args()
	switch c.FunctionName() {
	case operators.Conditional:
		u.walk(args[0], false, at)
		u.walk(args[1], copied, at)
		u.walk(args[2], copied, at)
		return
	case operators.Equals, operators.NotEquals:
		for i, arg := range args {
			if isEmpty(args[1-i]) {
				u.indexes(arg)
				return
			}
		}
	case operators.Add:
		if args[0].Kind() == ast.IdentKind && u.results[args[0].AsIdent()] { // the macro map appends an element
			u.walk(args[1], copied, at)
			return
		}
	case operators.Index: // an element of a computed value
		u.walk(args[0], copied, at)
		u.walk(args[1], false, at)
		return
	case overloads.TypeConvertString, overloads.TypeConvertDyn:
		u.walk(args[0], copied, at)
		return
	}
	if c.IsMemberFunction() {
		args = append(slices.Clip(args), c.Target())
	}
	for _, arg := range args {
		u.walk(arg, false, at)
	}
}

func (u *uses) comprehension(c ast.ComprehensionExpr, copied bool, at string) {
	list := c.IterRange()
	if list.Kind() == ast.ComprehensionKind {
		u.walk(list, false, at)
		for list.Kind() == ast.ComprehensionKind {
			list = list.AsComprehension().IterRange()
		}
	}
	u.results[c.AccuVar()] = true
	if of, is := u.useOf(list); is {
		u.bound[c.IterVar()] = of
	} else {
		u.walk(list, copied, at)
		u.results[c.IterVar()] = true
	}
	u.walk(c.LoopStep(), copied, at)
	u.walk(c.Result(), copied, at)
}

// useOf returns the value that e names, if e is an identifier, a field, or an element of a list or map.
func (u *uses) useOf(e ast.Expr) (Use, bool) {
	switch e.Kind() {
	case ast.IdentKind:
		if of, is := u.bound[e.AsIdent()]; is {
			return of, true
		}
		return Use{Object: e.AsIdent()}, true
	case ast.SelectKind:
		s := e.AsSelect()
		of, is := u.useOf(s.Operand())
		of.Path = join(of.Path, s.FieldName())
		return of, is && !s.IsTestOnly()
	case ast.CallKind:
		if e.AsCall().FunctionName() != operators.Index {
			return Use{}, false
		}
		of, is := u.useOf(e.AsCall().Args()[0])
		if name, named := literalOf(e.AsCall().Args()[1]).(string); named {
			of.Path = join(of.Path, name)
		}
		return of, is
	}
	return Use{}, false
}

// indexes walks the computed indexes in a value's name, such as data.n in event.list[data.n].
func (u *uses) indexes(e ast.Expr) {
	switch {
	case e.Kind() == ast.SelectKind:
		u.indexes(e.AsSelect().Operand())
	case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Index:
		u.indexes(e.AsCall().Args()[0])
		u.walk(e.AsCall().Args()[1], false, "")
	}
}

func isEmpty(e ast.Expr) bool {
	return e.Kind() == ast.LiteralKind && (e.AsLiteral().Equal(types.String("")) == types.True || e.AsLiteral() == types.NullValue)
}

func literalOf(e ast.Expr) any {
	if e.Kind() != ast.LiteralKind {
		return nil
	}
	return e.AsLiteral().Value()
}

func join(path, name string) string {
	if path == "" || name == "" {
		return cmp.Or(path, name)
	}
	return path + "." + name
}
