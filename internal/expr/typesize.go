package expr

import (
	"fmt"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
)

// maxTypeSize limits the number of types that the type of a part of an expression consists of. CEL's check writes the type out: of
// [{0: 0}].map(v, {v: v}).map(v, {v: v}), which has a map as its key, each further map doubles it, and 14 of them took a check of 40 s.
const maxTypeSize = 200

// checkTypeSize refuses a parsed expression with a type that is too large to be checked.
func checkTypeSize(parsed *cel.Ast) error {
	s := typeSizes{}
	s.of(parsed.NativeRep().Expr())
	if s.exceeded {
		return fmt.Errorf("%w: a part of it has a type of more than %d types: do not use maps or lists as keys of maps", ErrTooLarge, maxTypeSize)
	}
	return nil
}

// typeSizes computes upper bounds of type sizes before the type check.
type typeSizes struct {
	variables []typedVariable // of the comprehensions around the part, the innermost last
	exceeded  bool
}

type typedVariable struct {
	name string
	size int
}

// of returns the size of the type of x. After it exceeded the limit, it returns 1 at once.
func (s *typeSizes) of(x ast.Expr) (size int) {
	if s.exceeded {
		return 1
	}
	size = 1
	switch x.Kind() {
	case ast.IdentKind:
		for _, v := range s.variables {
			if v.name == x.AsIdent() {
				size = v.size
			}
		}
	case ast.SelectKind:
		size = s.of(x.AsSelect().Operand())
	case ast.CallKind:
		call := x.AsCall()
		args := call.Args()
		if call.IsMemberFunction() {
			args = append([]ast.Expr{call.Target()}, args...)
		}
		size += s.largest(args)
	case ast.ListKind:
		size += s.largest(x.AsList().Elements())
	case ast.MapKind:
		var keys, values []ast.Expr
		for _, entry := range x.AsMap().Entries() {
			keys, values = append(keys, entry.AsMapEntry().Key()), append(values, entry.AsMapEntry().Value())
		}
		size += s.largest(keys) + s.largest(values)
	case ast.StructKind:
		for _, field := range x.AsStruct().Fields() {
			size = max(size, s.of(field.AsStructField().Value()))
		}
	case ast.ComprehensionKind:
		size = s.ofComprehension(x.AsComprehension())
	}
	s.exceeded = s.exceeded || size > maxTypeSize
	return size
}

func (s *typeSizes) largest(all []ast.Expr) (size int) {
	for _, x := range all {
		size = max(size, s.of(x))
	}
	return size
}

// ofComprehension returns the size of the type of the result. A step that adds to a list or map does not make its type larger, so the
// size of the accumulator is the one after the first step.
func (s *typeSizes) ofComprehension(c ast.ComprehensionExpr) (size int) {
	element := s.of(c.IterRange())
	size = s.of(c.AccuInit())
	outer := len(s.variables)
	defer func() { s.variables = s.variables[:outer] }()
	s.variables = append(s.variables, typedVariable{c.IterVar(), element})
	if c.HasIterVar2() {
		s.variables = append(s.variables, typedVariable{c.IterVar2(), element})
	}
	s.variables = append(s.variables, typedVariable{c.AccuVar(), size})
	s.of(c.LoopCondition())
	size = max(size, s.of(c.LoopStep()))
	s.variables[len(s.variables)-1].size = size
	return max(size, s.of(c.Result()))
}
