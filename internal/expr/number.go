package expr

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strconv"
	"strings"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// maxDigits limits the digits of a number when it is written without an exponent. A double needs at most 1,075.
const maxDigits = 1100

// Number returns a JSON number in the form of expressions and states: int64 if it is written without a point or an exponent and
// fits, float64 if a double represents all of its digits, and else a json.Number with the same digits, which expressions can
// compare and copy but not calculate with. Equal numbers of the last form have equal texts.
func Number(text string) (any, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	d, err := decimalOf(text)
	if err != nil {
		return nil, err
	}
	f, err := strconv.ParseFloat(text, 64)
	if err == nil && d.isDouble(f) {
		return f + 0, nil // -0 is 0, since JSON in Postgres has no -0
	}
	plain := d.plain()
	if n, err := strconv.ParseInt(plain, 10, 64); err == nil {
		return n, nil
	}
	return json.Number(plain), nil
}

// decimal is a number as its digits, without leading and trailing zeros, and the power of ten of the last digit.
type decimal struct {
	negative bool
	digits   string
	exponent int
}

func decimalOf(text string) (d decimal, err error) {
	mantissa, exponent := text, ""
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mantissa, exponent = text[:i], text[i+1:]
		if exponent == "" {
			return d, fmt.Errorf("%q is no number", short(text))
		}
	}
	mantissa, d.negative = strings.CutPrefix(mantissa, "-")
	before, after, _ := strings.Cut(mantissa, ".")
	if before+after == "" || strings.Trim(before+after, "0123456789") != "" {
		return d, fmt.Errorf("%q is no number", short(text))
	}
	d.digits = strings.TrimLeft(before+after, "0")
	if d.digits == "" {
		return d, nil
	}
	if exponent != "" {
		if d.exponent, err = strconv.Atoi(exponent); err != nil {
			return d, fmt.Errorf("the number %s has an exponent that is too large", short(text))
		}
	}
	d.exponent -= len(after)
	trimmed := strings.TrimRight(d.digits, "0")
	d.exponent += len(d.digits) - len(trimmed)
	d.digits = trimmed
	if len(d.digits) > maxDigits || d.exponent > maxDigits-len(d.digits) || d.exponent < -maxDigits {
		return d, fmt.Errorf("the number %s has more than %d digits", short(text), maxDigits)
	}
	return d, nil
}

// checkDigits refuses a number that Number refuses: a comparison of it could take seconds, and gigabytes.
func checkDigits(text string) error {
	if len(text) > 2*maxDigits+len("-0.") {
		return fmt.Errorf("the number %s has more than %d digits", short(text), maxDigits)
	}
	_, err := decimalOf(text)
	return err
}

func short(text string) string {
	if len(text) > 40 {
		return text[:37] + "..."
	}
	return text
}

// isDouble reports whether d is a notation of f: the shortest digits that parse as f, or f rounded to as many digits as d has. A
// whole number of more than 17 digits must have all digits of f.
func (d decimal) isDouble(f float64) bool {
	if d.digits == "" {
		return true
	}
	if len(d.digits) > 17 && d.exponent >= 0 {
		return strconv.FormatFloat(f, 'f', 0, 64) == d.plain()
	}
	for _, precision := range []int{len(d.digits) - 1, -1} {
		mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(math.Abs(f), 'e', precision, 64), "e")
		power, _ := strconv.Atoi(exponent)
		digits := strings.TrimRight(strings.Replace(mantissa, ".", "", 1), "0")
		if digits == d.digits && power == len(d.digits)-1+d.exponent {
			return true
		}
	}
	return false
}

// plain returns d without an exponent.
func (d decimal) plain() string {
	sign := ""
	if d.negative {
		sign = "-"
	}
	switch point := len(d.digits) + d.exponent; {
	case d.exponent >= 0:
		return sign + d.digits + strings.Repeat("0", d.exponent)
	case point > 0:
		return sign + d.digits[:point] + "." + d.digits[point:]
	default:
		return sign + "0." + strings.Repeat("0", -point) + d.digits
	}
}

// number is a json.Number in an expression.
type number string

var (
	numberType = types.NewOpaqueType("number")

	_ ref.Val         = number("")
	_ traits.Comparer = number("")
)

func (n number) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("the number %s does not fit %s", string(n), t)
}

func (n number) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.StringType:
		return types.String(n)
	case types.TypeType:
		return numberType
	}
	return n.refused()
}

func (n number) refused() ref.Val {
	return types.NewErr("%s has more digits than expressions calculate with: it can be compared, copied, and made a text by string()", short(string(n)))
}

func (n number) Equal(other ref.Val) ref.Val {
	order, are := compareNumbers(n, other)
	return types.Bool(are && order == 0)
}

func (n number) Compare(other ref.Val) ref.Val {
	if order, are := compareNumbers(n, other); are {
		return types.Int(order)
	}
	return types.MaybeNoSuchOverloadErr(other)
}

func (n number) Type() ref.Type { return numberType }

func (n number) Value() any { return json.Number(n) }

// compareNumbers compares two numbers by value; are is false if one of them is no number. CEL itself compares an int and a double
// as doubles.
func compareNumbers(a, b ref.Val) (order int, are bool) {
	x, y := rational(a), rational(b)
	if x == nil || y == nil {
		return 0, false
	}
	return x.Cmp(y), true
}

func rational(v ref.Val) *big.Rat {
	switch v := v.(type) {
	case types.Int:
		return new(big.Rat).SetInt64(int64(v))
	case types.Uint:
		return new(big.Rat).SetUint64(uint64(v))
	case types.Double:
		return new(big.Rat).SetFloat64(float64(v)) // nil if it is infinite or not a number
	case number:
		r, _ := new(big.Rat).SetString(string(v))
		return r
	}
	return nil
}

// celCompares reports whether CEL's own comparison of a and b is exact, as for two values that are not numbers.
func celCompares(a, b ref.Val) bool {
	if a.Type() == numberType || b.Type() == numberType {
		return false
	}
	fits := func(v ref.Val) bool { // into a double
		n, is := v.(types.Int)
		return is && -1<<53 <= n && n <= 1<<53
	}
	return a.Type() == b.Type() || fits(a) || fits(b)
}

// compared is a comparison of two values that compares numbers by value, also if their types differ.
type compared struct{ interpreter.InterpretableCall }

func (c compared) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	a := c.Args()[0].Exec(frame)
	if types.IsUnknownOrError(a) {
		return a
	}
	b := c.Args()[1].Exec(frame)
	if types.IsUnknownOrError(b) {
		return b
	}
	v := c.apply(a, b)
	if tracker := frame.CostTracker(); tracker != nil {
		tracker.EvalBinary(frame, c.ID(), c, a, b, v)
	}
	return v
}

func (c compared) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, c.Exec)
}

func (c compared) apply(a, b ref.Val) ref.Val {
	order, are := 0, false
	if !celCompares(a, b) {
		order, are = compareNumbers(a, b)
	}
	switch c.Function() {
	case operators.Equals, operators.NotEquals:
		equal := ref.Val(types.Bool(order == 0))
		if !are {
			equal = types.Equal(a, b)
		}
		if c.Function() == operators.NotEquals {
			return types.Bool(equal != types.True)
		}
		return equal
	}
	if !are {
		x, ok := a.(traits.Comparer)
		if !ok {
			return types.MaybeNoSuchOverloadErr(a)
		}
		compared := x.Compare(b)
		n, ok := compared.(types.Int)
		if !ok {
			return compared
		}
		order = int(n)
	}
	switch c.Function() {
	case operators.Less:
		return types.Bool(order < 0)
	case operators.LessEquals:
		return types.Bool(order <= 0)
	case operators.Greater:
		return types.Bool(order > 0)
	}
	return types.Bool(order >= 0)
}

// texted is the function string() that also accepts a number of many digits.
type texted struct{ interpreter.InterpretableCall }

func (t texted) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	arg := t.Args()[0].Exec(frame)
	if types.IsUnknownOrError(arg) {
		return arg
	}
	v := arg.ConvertToType(types.StringType)
	if tracker := frame.CostTracker(); tracker != nil {
		tracker.EvalUnary(frame, t.ID(), t, arg, v)
	}
	return v
}

func (t texted) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, t.Exec)
}

// Text returns a value as text, in the form in which values that find a saga are compared. Null is empty.
func Text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64: // senders write 1000000 also as 1000000.0 and 1e6
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}
