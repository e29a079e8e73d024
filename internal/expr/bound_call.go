package expr

import (
	"fmt"
	"regexp"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// calling is the cost of calls that read an argument to its end. CEL counts such a call as 1 if the type of the argument is known only
// when it is evaluated, as of a field of an event.
type calling struct{}

// zoneCost is the cost of a time zone, which Go reads from a file.
const zoneCost = 100

func (calling) CallCost(function, overload string, args []ref.Val, _ ref.Val) *uint64 {
	n := uint64(1)
	switch function {
	case operators.Add, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		if overload != "" || len(args) != 2 {
			return nil // CEL counts the texts of a call whose types are known
		}
	case overloads.TypeConvertBool, overloads.TypeConvertBytes, overloads.TypeConvertDouble, overloads.TypeConvertDuration,
		overloads.TypeConvertInt, overloads.TypeConvertString, overloads.TypeConvertTimestamp, overloads.TypeConvertUint:
	case overloads.TimeGetFullYear, overloads.TimeGetMonth, overloads.TimeGetDate, overloads.TimeGetDayOfMonth, overloads.TimeGetDayOfWeek,
		overloads.TimeGetDayOfYear, overloads.TimeGetHours, overloads.TimeGetMinutes, overloads.TimeGetSeconds, overloads.TimeGetMilliseconds:
		if len(args) > 1 {
			n += zoneCost
		}
	case operators.In:
		if _, ok := args[1].(traits.Mapper); ok {
			args = args[:1] // a look-up reads the key only
		}
	default:
		return nil
	}
	for _, v := range args {
		n += costOf(v)
	}
	return &n
}

// rangesOf returns the ids of the parts of an expression that its comprehensions iterate over.
func rangesOf(a *cel.Ast) map[int64]bool {
	ranges := make(map[int64]bool)
	ast.PreOrderVisit(a.NativeRep().Expr(), ast.NewExprVisitor(func(x ast.Expr) {
		if x.Kind() == ast.ComprehensionKind {
			ranges[x.AsComprehension().IterRange().ID()] = true
		}
	}))
	return ranges
}

// iterated wraps the part that a comprehension iterates over. A map's keys are all sorted first, also if the comprehension ends at
// the first one: that costs 1 for four keys.
type iterated struct{ interpreter.InterpretableV2 }

func (i iterated) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := i.InterpretableV2.Exec(frame)
	if m, ok := v.(traits.Mapper); ok {
		if n, ok := m.Size().(types.Int); ok {
			charge(frame, i.ID(), uint64(n)/4)
		}
	}
	return v
}

func (i iterated) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, i.Exec)
}

// charge adds n to the cost of the evaluation, which ends here if that is too much.
func charge(frame *interpreter.ExecutionFrame, id int64, n uint64) {
	if tracker := frame.CostTracker(); tracker != nil {
		size := types.Int(n * 160)
		tracker.EvalUnary(frame, id, counting{}, size, size)
	}
}

// maxPattern is the number of instructions that a pattern of matches() is compiled to, at most, and the number of the instructions of all
// constant patterns of an expression. x{1,100} has 200.
const maxPattern = 1000

// matched is the function matches(), whose cost is known before it is called: to match a text takes up to as many steps as it has
// characters, times the instructions of the pattern.
type matched struct {
	interpreter.InterpretableV2
	text, pattern interpreter.InterpretableV2
	constant      *compiledPattern // nil: the pattern is known only when it is evaluated
}

type compiledPattern struct {
	*regexp.Regexp
	instructions int
}

func compilePattern(pattern string) (*compiledPattern, error) {
	size, err := types.RegexProgramSize(pattern)
	if err != nil {
		return nil, err
	}
	if size > maxPattern {
		return nil, fmt.Errorf("%w: the pattern has %d instructions, the limit is %d", ErrTooLarge, size, maxPattern)
	}
	compiled, err := regexp.Compile(pattern)
	return &compiledPattern{compiled, size}, err
}

// patterns has the number of the instructions of the constant patterns of an expression.
type patterns struct{ instructions int }

// limit replaces calls of matches().
func (p *patterns) limit(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok || call.Function() != overloads.Matches || len(call.Args()) != 2 {
		return i, nil
	}
	m := matched{InterpretableV2: i, text: call.Args()[0], pattern: call.Args()[1]}
	if constant, ok := m.pattern.(interpreter.InterpretableConst); ok {
		if pattern, ok := constant.Value().(types.String); ok {
			var err error
			if m.constant, err = compilePattern(string(pattern)); err != nil {
				return nil, err
			}
			if p.instructions += m.constant.instructions; p.instructions > maxPattern {
				return nil, fmt.Errorf("%w: the patterns have %d instructions together, the limit is %d", ErrTooLarge, p.instructions, maxPattern)
			}
		}
	}
	return m, nil
}

func (m matched) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	a, b := m.text.Exec(frame), m.pattern.Exec(frame)
	for _, v := range []ref.Val{a, b} {
		if types.IsUnknownOrError(v) {
			return v
		}
	}
	text, ok := a.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(a)
	}
	pattern, ok := b.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(b)
	}
	compiled := m.constant
	if compiled == nil {
		charge(frame, m.ID(), uint64(len(pattern)))
		var err error
		if compiled, err = compilePattern(string(pattern)); err != nil {
			return types.WrapErr(err)
		}
	}
	charge(frame, m.ID(), 1+uint64(compiled.instructions)*uint64(len(text))/160)
	return types.Bool(compiled.MatchString(string(text)))
}

func (m matched) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, m.Exec)
}
