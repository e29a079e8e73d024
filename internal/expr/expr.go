// Package expr compiles and evaluates the expressions of definitions: CEL (the Common Expression Language, cel.dev) over objects
// with declared fields, checked at compilation.
//
// An expression has no side effects and ends: its length, its depth, the steps of an evaluation and the size of its result are
// limited, the same for each evaluation of the same values. It reads no clock: the variable now has the time that the caller gives.
//
//	failure                                        effect
//	syntax, unknown field, wrong type              Compile's error, with the column
//	a field that is declared and not set           Eval's error wraps ErrUnset; has(data.field) tests it without an error
//	too many steps, a result that is too large     Eval's error wraps ErrTooLarge, with the expression and the limit
//	division by zero, …                            Eval's error
package expr

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// A Type is the type of a field. Values are Go's string, int64, float64 and bool; Any is any JSON value, with numbers as Number
// returns them.
type Type string

// The types.
const (
	String Type = "string"
	Int    Type = "int" // 64 bits
	Double Type = "double"
	Bool   Type = "bool"
	Any    Type = "any"
)

// Valid reports whether t is one of the five types.
func (t Type) Valid() bool { return cels[t] != nil }

var cels = map[Type]*cel.Type{
	String: cel.StringType, Int: cel.IntType, Double: cel.DoubleType, Bool: cel.BoolType, Any: cel.DynType,
}

// Limits of an expression.
const (
	maxLength = 2000 // characters
	maxDepth  = 40
)

// ErrUnset is wrapped by errors of evaluations that read a field without a value.
var ErrUnset = errors.New("not set")

// Now is the name of the variable that has the time of an evaluation, in every Env. Its value in the objects of Eval is a time.Time.
const Now = "now"

// Fields maps the names of an object's fields to their types.
type Fields map[string]Type

// An Env holds the objects that expressions may name. It may be used concurrently.
type Env struct {
	env     *cel.Env
	objects map[string]Fields
}

// NewEnv makes an Env of objects by their names. An object with nil Fields has any field.
func NewEnv(objects map[string]Fields) (*Env, error) {
	registry, err := types.NewRegistry()
	if err != nil {
		return nil, err
	}
	p := &provider{registry, objects}
	opts := []cel.EnvOption{
		cel.Variable(Now, cel.TimestampType),
		cel.CustomTypeProvider(p), cel.CustomTypeAdapter(adapter{registry}),
		cel.ParserExpressionSizeLimit(maxLength), cel.ParserRecursionLimit(maxDepth),
	}
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		t := cel.ObjectType(name)
		if objects[name] == nil {
			t = cel.MapType(cel.StringType, cel.DynType)
		}
		opts = append(opts, cel.Variable(name, t))
	}
	env, err := cel.NewEnv(opts...)
	if err != nil {
		return nil, err
	}
	return &Env{env, objects}, nil
}

// With returns an Env that also declares the given values by name. Their fields are not declared, so expressions may read any.
func (e *Env) With(values map[string]Type) (*Env, error) {
	with := &Env{objects: maps.Clone(e.objects)}
	var opts []cel.EnvOption
	for _, name := range slices.Sorted(maps.Keys(values)) {
		opts = append(opts, cel.Variable(name, cels[values[name]]))
		with.objects[name] = nil
	}
	var err error
	with.env, err = e.env.Extend(opts...)
	return with, err
}

// provider declares the objects to CEL. Their values are maps, so it provides no access to fields.
type provider struct {
	*types.Registry
	objects map[string]Fields
}

func (p *provider) FindStructType(name string) (*types.Type, bool) {
	if p.objects[name] != nil {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return p.Registry.FindStructType(name)
}

func (p *provider) FindStructFieldNames(name string) ([]string, bool) {
	if fields := p.objects[name]; fields != nil {
		return slices.Sorted(maps.Keys(fields)), true
	}
	return p.Registry.FindStructFieldNames(name)
}

func (p *provider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	if fields := p.objects[name]; fields != nil {
		t, ok := fields[field]
		return &types.FieldType{Type: cels[t]}, ok
	}
	return p.Registry.FindStructFieldType(name, field)
}

// An Expr is a compiled expression. It may be used concurrently.
type Expr struct {
	text    string
	ast     *cel.Ast
	program cel.Program
	reads   []Read
	now     bool
}

// A Read is a field that an expression reads. It is Tested if the field is in a has() of the expression: then the expression can
// be evaluated without it, unless the field is also read untested.
type Read struct {
	Object, Field string
	Tested        bool
}

// Compile compiles text, whose value must be of type want; Any accepts every type.
func (e *Env) Compile(text string, want Type) (*Expr, error) {
	parsed, issues := e.env.Parse(text)
	if issues.Err() != nil {
		return nil, firstOf(text, issues)
	}
	if err := checkTypeSize(parsed); err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	checked, issues := e.env.Check(parsed)
	if issues.Err() != nil {
		return nil, firstOf(text, issues)
	}
	if got := checked.OutputType(); want != Any && !got.IsEquivalentType(cels[want]) && got.Kind() != types.DynKind {
		return nil, fmt.Errorf("%q is of type %s, want %s", text, got, want)
	}
	program, err := e.env.Program(checked, append([]cel.ProgramOption{cel.CustomDecoratorV2(canonical), cel.EvalOptions(cel.OptOptimize)}, bounded(rangesOf(checked))...)...)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	return &Expr{text: text, ast: checked, program: program, reads: e.readsOf(checked), now: readsNow(checked)}, nil
}

// firstOf returns the first of the errors of a compilation, with its column.
func firstOf(text string, issues *cel.Issues) error {
	first := issues.Errors()[0]
	message := strings.ReplaceAll(first.Message, "undeclared reference to", "unknown name")
	return fmt.Errorf("%q: column %d: %s", text, first.Location.Column()+1, message)
}

func readsNow(a *cel.Ast) (reads bool) {
	ast.PreOrderVisit(a.NativeRep().Expr(), ast.NewExprVisitor(func(x ast.Expr) {
		reads = reads || x.Kind() == ast.IdentKind && x.AsIdent() == Now
	}))
	return reads
}

func (e *Env) readsOf(a *cel.Ast) []Read {
	var reads []Read
	ast.PreOrderVisit(a.NativeRep().Expr(), ast.NewExprVisitor(func(x ast.Expr) {
		if x.Kind() != ast.SelectKind || x.AsSelect().Operand().Kind() != ast.IdentKind {
			return
		}
		object := x.AsSelect().Operand().AsIdent()
		if _, known := e.objects[object]; known {
			r := Read{object, x.AsSelect().FieldName(), x.AsSelect().IsTestOnly()}
			if !slices.Contains(reads, r) {
				reads = append(reads, r)
			}
		}
	}))
	return reads
}

// MayBeList reports whether the type of the expression is a list, or is known only when it is evaluated.
func (x *Expr) MayBeList() bool {
	kind := x.ast.OutputType().Kind()
	return kind == types.ListKind || kind == types.DynKind
}

// Text returns the text that it was compiled from.
func (x *Expr) Text() string { return x.text }

// Reads returns the fields that it reads, each once, tested and not.
func (x *Expr) Reads() []Read { return x.reads }

// ReadsNow reports whether its value may depend on the time.
func (x *Expr) ReadsNow() bool { return x.now }

// Eval evaluates it over the objects' fields. Values have the types of Type, or are nil, []any or map[string]any; the result too: a
// timestamp becomes the text that string() gives.
func (x *Expr) Eval(objects map[string]any) (any, error) {
	v, _, err := x.program.Eval(objects)
	if err = limited(err); errors.Is(err, ErrTooLarge) {
		return nil, fmt.Errorf("%q: %w", x.text, err)
	}
	if err != nil {
		for _, r := range x.reads {
			fields, _ := objects[r.Object].(map[string]any)
			if _, set := fields[r.Field]; !set && !r.Tested {
				return nil, fmt.Errorf("%q: %s.%s is %w", x.text, r.Object, r.Field, ErrUnset)
			}
		}
		return nil, fmt.Errorf("%q: %w", x.text, x.unquoted(err))
	}
	value, err := native(v)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", x.text, err)
	}
	return value, nil
}

// valued lists the beginnings of CEL's errors that a value follows.
var valued = []string{"invalid RFC 3339 timestamp ", "no such key: ", "error parsing regexp: ", "unknown time zone ", "strconv.Atoi: parsing ",
	"timezone offset hours out of range [-23, 23]: ", "timezone offset minutes out of range [0, 59]: "}

// unquoted returns err without a value that is not a part of the expression: values are data of messages.
func (x *Expr) unquoted(err error) error {
	for _, begin := range valued {
		if value, found := strings.CutPrefix(err.Error(), begin); found && !strings.Contains(x.text, strings.Trim(value, "\"`")) {
			return errors.New(strings.TrimRight(begin, ": ") + " (the value is not shown)")
		}
	}
	return err
}

// Holds evaluates a condition.
func (x *Expr) Holds(objects map[string]any) (bool, error) {
	v, err := x.Eval(objects)
	if err != nil {
		return false, err
	}
	b, ok := v.(bool)
	if !ok {
		return false, fmt.Errorf("%q gives %T, want true or false", x.text, v) // the value may be personal data
	}
	return b, nil
}

// A Bound is a number or text that an expression compares a field with.
type Bound struct {
	Object, Field string
	Value         any
	Ordered       bool // by <, <=, > or >=
}

// Integers returns the whole numbers that the expression has as literals.
func (x *Expr) Integers() (all []int64) {
	ast.PreOrderVisit(x.ast.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if n, is := literalOf(e).(int64); is {
			all = append(all, n)
		}
	}))
	return all
}

// Names returns the texts by which the expression may name fields and keys of maps, each once: its literals, and the names that it selects.
func (x *Expr) Names() (all []string) {
	ast.PreOrderVisit(x.ast.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		key, is := literalOf(e).(string)
		if e.Kind() == ast.SelectKind {
			key, is = e.AsSelect().FieldName(), true
		}
		if is && !slices.Contains(all, key) {
			all = append(all, key)
		}
	}))
	return all
}

// Bounds returns the literals with which the expression compares fields: at these values its result may change.
func (x *Expr) Bounds() []Bound {
	var bounds []Bound
	ast.PreOrderVisit(x.ast.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || len(e.AsCall().Args()) != 2 {
			return
		}
		ordered := false
		switch e.AsCall().FunctionName() {
		case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
			ordered = true
		case operators.Equals, operators.NotEquals:
		default:
			return
		}
		a, b := e.AsCall().Args()[0], e.AsCall().Args()[1]
		if a.Kind() == ast.LiteralKind {
			a, b = b, a
		}
		if a.Kind() != ast.SelectKind || a.AsSelect().Operand().Kind() != ast.IdentKind || b.Kind() != ast.LiteralKind {
			return
		}
		if v, err := native(b.AsLiteral()); err == nil {
			bounds = append(bounds, Bound{a.AsSelect().Operand().AsIdent(), a.AsSelect().FieldName(), v, ordered})
		}
	}))
	return bounds
}
