package expr

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// Limits of an evaluation. They count steps and bytes, and read no clock, so that an evaluation ends in the same way each time.
const (
	maxCost   = 100_000 // as CEL counts: a comparison is 1, and ten values of a list or map that is built or compared are 1
	maxResult = 4 << 20 // approximate bytes of the copied result, as JSON
)

// ErrTooLarge is wrapped by errors of evaluations that cost more steps, or have a larger result, than the limits allow.
var ErrTooLarge = errors.New("too large")

// bounded returns the options that bound every evaluation. CEL's own count ignores the size of values: to compare or copy 28
// nested lists [v, v] takes 2^28 steps, and to build them 28. So the cost of each list and map is the number of values in it,
// when it is built and when it is compared, even if it contains the same value many times. ranges has the ids of the parts that
// comprehensions iterate over.
func bounded(ranges map[int64]bool) []cel.ProgramOption {
	compared := func(args []ref.Val, _ ref.Val) *uint64 {
		n := uint64(1)
		for _, v := range args {
			n += costOf(v)
		}
		return &n
	}
	return []cel.ProgramOption{
		cel.CostLimit(maxCost),
		cel.CostTracking(calling{}),
		cel.CustomDecoratorV2(new(patterns).limit),
		cel.CustomDecoratorV2(func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
			if ranges[i.ID()] {
				return iterated{i}, nil
			}
			return i, nil
		}),
		cel.CustomDecoratorV2(chargeBuilt),
		cel.CostTrackerOptions(
			cost.OverloadTracker(building{}.OverloadID(), func(args []ref.Val, _ ref.Val) *uint64 {
				n := costOf(args[0])
				return &n
			}),
			cost.OverloadTracker(counting{}.OverloadID(), func(_ []ref.Val, size ref.Val) *uint64 {
				n, _ := size.(types.Int)
				steps := uint64(max(0, n)) / 160
				return &steps
			}),
			cost.OverloadTracker(overloads.Equals, compared),
			cost.OverloadTracker(overloads.NotEquals, compared),
		),
	}
}

// chargeBuilt adds a cost to literals, additions and comprehensions for the list or map that they build. A literal of constants
// is as long as its text, and costs nothing.
func chargeBuilt(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	switch i := i.(type) {
	case interpreter.InterpretableConst, interpreter.InterpretableAttribute:
		return i, nil
	case interpreter.InterpretableCall:
		if i.Function() == overloads.Size {
			return counted{i}, nil
		}
		if i.Function() != operators.Add {
			return i, nil
		}
	case interpreter.InterpretableConstructor:
		constant := true
		for _, v := range i.InitVals() {
			_, is := v.(interpreter.InterpretableConst)
			constant = constant && is
		}
		if constant {
			return i, nil
		}
	}
	return charged{i}, nil
}

// charged wraps a part of an expression, and adds a cost for the values in its list or map.
type charged struct{ interpreter.InterpretableV2 }

func (c charged) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := c.InterpretableV2.Exec(frame)
	switch v.(type) {
	case traits.MutableLister, traits.MutableMapper: // an intermediate value of a comprehension: it is charged once, at the end
	case traits.Lister, traits.Mapper:
		if tracker := frame.CostTracker(); tracker != nil {
			tracker.EvalUnary(frame, c.ID(), building{}, v, v)
		}
	}
	return v
}

func (c charged) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, c.Exec)
}

// counted wraps a call of size(), which reads all of a text and costs 1 by CEL's own count. It adds 1 for 160 characters.
type counted struct{ interpreter.InterpretableV2 }

func (c counted) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := c.InterpretableV2.Exec(frame)
	if tracker := frame.CostTracker(); tracker != nil {
		tracker.EvalUnary(frame, c.ID(), counting{}, v, v)
	}
	return v
}

func (c counted) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, c.Exec)
}

// counting is the function under which CEL counts the characters of a text.
type counting struct{}

func (counting) Function() string   { return "count" }
func (counting) OverloadID() string { return "troupe_count" }

// building is the function under which CEL counts a built value.
type building struct{}

func (building) Function() string   { return "build" }
func (building) OverloadID() string { return "troupe_build" }

// costOf returns 1 for ten values in v, or for 160 bytes of text. It stops counting above the limit of an evaluation.
func costOf(v ref.Val) uint64 {
	left := 10 * (maxCost + 1)
	weigh(v, &left)
	return uint64(10*(maxCost+1)-left) / 10
}

func weigh(v ref.Val, left *int) {
	*left--
	switch v := v.(type) {
	case types.String:
		*left -= len(v) / 16
	case types.Bytes:
		*left -= len(v) / 16
	case number:
		*left -= len(v) / 16
	case traits.Mapper:
		for it := v.Iterator(); *left > 0 && it.HasNext() == types.True; {
			k := it.Next()
			weigh(k, left)
			weigh(v.Get(k), left)
		}
	case traits.Lister:
		for it := v.Iterator(); *left > 0 && it.HasNext() == types.True; {
			weigh(it.Next(), left)
		}
	}
}

// limited returns err as ErrTooLarge with the limit, if CEL stopped an evaluation that cost too much.
func limited(err error) error {
	var stopped interpreter.EvalCancelledError
	if errors.As(err, &stopped) && stopped.Cause == interpreter.CostLimitExceeded {
		return fmt.Errorf("%w: it takes more than %d steps", ErrTooLarge, maxCost)
	}
	return err
}

// native copies v to Go values, up to maxResult.
func native(v ref.Val) (any, error) {
	c := copying{left: maxResult}
	return c.copy(v)
}

type copying struct{ left int }

func (c *copying) copy(v ref.Val) (any, error) {
	c.left -= 2
	if s, ok := v.(types.String); ok {
		c.left -= len(s)
	}
	if c.left < 0 {
		return nil, fmt.Errorf("%w: its value has more than %d bytes", ErrTooLarge, maxResult)
	}
	switch v := v.(type) {
	case types.String:
		return string(v), nil
	case types.Timestamp:
		text, ok := v.ConvertToType(types.StringType).(types.String)
		if !ok {
			return nil, errors.New("the time has no text")
		}
		return string(text), nil
	case types.Int:
		return int64(v), nil
	case types.Uint:
		if v > math.MaxInt64 {
			return nil, fmt.Errorf("%d is out of range", uint64(v))
		}
		return int64(v), nil
	case number:
		c.left -= len(v)
		return json.Number(v), nil
	case types.Double:
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return nil, fmt.Errorf("%v is no number", float64(v))
		}
		return float64(v), nil
	case types.Bool:
		return bool(v), nil
	case types.Null:
		return nil, nil
	case traits.Mapper:
		m := make(map[string]any)
		for it := v.Iterator(); it.HasNext() == types.True; {
			k := it.Next()
			key, ok := k.(types.String)
			if !ok {
				return nil, fmt.Errorf("a key is of type %s, want string", k.Type().TypeName())
			}
			c.left -= len(key)
			value, err := c.copy(v.Get(k))
			if err != nil {
				return nil, err
			}
			m[string(key)] = value
		}
		return m, nil
	case traits.Lister:
		l := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			value, err := c.copy(it.Next())
			if err != nil {
				return nil, err
			}
			l = append(l, value)
		}
		return l, nil
	}
	return nil, fmt.Errorf("a value of type %s cannot be kept", v.Type().TypeName())
}
