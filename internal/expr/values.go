package expr

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// adapter converts Go values to CEL values. Its maps are sorted.
type adapter struct{ types.Adapter }

func (a adapter) NativeToValue(v any) ref.Val {
	var m ref.Val
	switch v := v.(type) {
	case map[string]any:
		m = types.NewStringInterfaceMap(a, v)
	case map[ref.Val]ref.Val:
		m = types.NewRefValMap(a, v)
	case []any:
		return types.NewDynamicList(a, v)
	case json.Number:
		if err := checkDigits(string(v)); err != nil {
			return types.WrapErr(err)
		}
		return number(v)
	default:
		m = a.Adapter.NativeToValue(v)
	}
	if m, ok := m.(traits.Mapper); ok {
		if _, is := m.(sorted); !is {
			return sorted{m}
		}
	}
	return m
}

// sorted is a map that iterates in the order of its keys, so that an expression over the same values gives the same value.
type sorted struct{ traits.Mapper }

func (m sorted) Iterator() traits.Iterator {
	var keys []ref.Val
	for it := m.Mapper.Iterator(); it.HasNext() == types.True; {
		keys = append(keys, it.Next())
	}
	slices.SortFunc(keys, compareKeys)
	return types.NewRefValList(types.DefaultTypeAdapter, keys).Iterator()
}

// Equal unwraps other, since CEL compares maps of one Go type faster.
func (m sorted) Equal(other ref.Val) ref.Val {
	if o, is := other.(sorted); is {
		other = o.Mapper
	}
	return m.Mapper.Equal(other)
}

// compareKeys orders keys of one type by their value, others by their type's name.
func compareKeys(a, b ref.Val) int {
	if c, ok := a.(traits.Comparer); ok && a.Type() == b.Type() {
		if n, ok := c.Compare(b).(types.Int); ok {
			return int(n)
		}
	}
	return cmp.Or(cmp.Compare(a.Type().TypeName(), b.Type().TypeName()), cmp.Compare(fmt.Sprint(a.Value()), fmt.Sprint(b.Value())))
}

// canonical sorts map literals, and lets arithmetic and comparisons accept numbers of two types.
func canonical(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	switch i := i.(type) {
	case interpreter.InterpretableConstructor:
		if i.Type() == types.MapType {
			return literal{i}, nil
		}
	case interpreter.InterpretableCall:
		switch i.Function() {
		case operators.Add, operators.Subtract, operators.Multiply, operators.Divide:
			return mixed{i}, nil
		case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
			return compared{i}, nil
		case overloads.TypeConvertString:
			return texted{i}, nil
		}
	}
	return i, nil
}

// literal builds a sorted map.
type literal struct {
	interpreter.InterpretableConstructor
}

func (l literal) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := l.InterpretableConstructor.Exec(frame)
	if m, ok := v.(traits.Mapper); ok {
		return sorted{m}
	}
	return v
}

func (l literal) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, l.Exec)
}

// mixed adds, subtracts, multiplies or divides an int and a double as doubles. JSON writes a double with a whole value as 10, and
// the fields of an event have no declared type: so the type of a number depends on its value.
type mixed struct{ interpreter.InterpretableCall }

func (m mixed) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	a, b := m.Args()[0].Exec(frame), m.Args()[1].Exec(frame)
	for _, v := range []ref.Val{a, b} {
		if types.IsUnknownOrError(v) {
			return v
		}
	}
	for _, v := range []ref.Val{a, b} {
		if n, is := v.(number); is {
			return n.refused()
		}
	}
	switch x := a.(type) {
	case types.Int:
		if _, is := b.(types.Double); is {
			a = types.Double(x)
		}
	case types.Double:
		if n, is := b.(types.Int); is {
			b = types.Double(n)
		}
	}
	v := m.apply(a, b)
	if tracker := frame.CostTracker(); tracker != nil {
		tracker.EvalBinary(frame, m.ID(), m, a, b, v)
	}
	return v
}

func (m mixed) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, m.Exec)
}

func (m mixed) apply(a, b ref.Val) ref.Val {
	switch m.Function() {
	case operators.Add:
		if x, ok := a.(traits.Adder); ok {
			return x.Add(b)
		}
	case operators.Subtract:
		if x, ok := a.(traits.Subtractor); ok {
			return x.Subtract(b)
		}
	case operators.Multiply:
		if x, ok := a.(traits.Multiplier); ok {
			return x.Multiply(b)
		}
	case operators.Divide:
		if x, ok := a.(traits.Divider); ok {
			return x.Divide(b)
		}
	}
	return types.MaybeNoSuchOverloadErr(a)
}
