package expr_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/expr"
)

func TestANumberKeepsItsDigits(t *testing.T) {
	for text, want := range map[string]any{
		"0": int64(0), "-0": int64(0), "10": int64(10), "10.0": 10.0, "1e1": 10.0, "0e3": 0.0, "-0.0": 0.0,
		"9223372036854775807": int64(math.MaxInt64), "-9223372036854775808": int64(math.MinInt64),
		"9223372036854775808":     9223372036854775808.0,
		"9223372036854775809":     json.Number("9223372036854775809"),
		"12345678901234567890":    json.Number("12345678901234567890"),
		"-12345678901234567890":   json.Number("-12345678901234567890"),
		"12345678901234567890.0":  json.Number("12345678901234567890"),
		"1.234567890123456789e19": json.Number("12345678901234567890"), "123456789012345678900e-1": json.Number("12345678901234567890"),
		"12345678901234567168": 12345678901234567168.0, "12345678901234567170": json.Number("12345678901234567170"),
		"12345678901234567000":  12345678901234567000.0, // as JavaScript prints that double
		"100000000000000000000": 1e20, "1e21": 1e21, "1e300": 1e300, "1.7976931348623157e308": math.MaxFloat64,
		"1e400": json.Number("1" + strings.Repeat("0", 400)), "1e-400": json.Number("0." + strings.Repeat("0", 399) + "1"),
		"5e-324": 5e-324, "4.9406564584124654e-324": 5e-324,
		"0.1": 0.1, "0.10000000000000001": 0.1, "0.1000000000000000055511151231257827": 0.1, "1.5e-7": 1.5e-7, "0.00000015": 1.5e-7,
		"0.12345678901234567890": json.Number("0.1234567890123456789"), "12345678901234567.89": json.Number("12345678901234567.89"),
		"9007199254740993": int64(9007199254740993), "9007199254740993.0": int64(9007199254740993), "9007199254740992.0": 9007199254740992.0,
		"9007199254740993.5": json.Number("9007199254740993.5"),
	} {
		got, err := expr.Number(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		if n, is := got.(json.Number); is {
			again, err := expr.Number(n.String())
			require.NoError(t, err)
			require.Equal(t, got, again, text)
		}
	}
	for _, text := range []string{"", "x", "1x", "0x10", "NaN", "Inf", "1e", "1e99999999999999999999", "1e2000", "1e-2000", "1" + strings.Repeat("2", 2000)} {
		_, err := expr.Number(text)
		require.Error(t, err, text)
		require.Less(t, len(err.Error()), 120)
	}
}

// FuzzADoubleIsReadAsItWasWritten uses all notations in which programs write a double.
func FuzzADoubleIsReadAsItWasWritten(f *testing.F) {
	for _, v := range []float64{0.1, 1e20, 1.2345678901234567e19, 5e-324, math.MaxFloat64, 1 << 63, 1.0 / 3, 5.684341886080801e-14, 9.5367431640625e-07} {
		f.Add(math.Float64bits(v))
	}
	f.Fuzz(func(t *testing.T, bits uint64) {
		v := math.Float64frombits(bits)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			t.Skip()
		}
		asJSON, err := json.Marshal(v)
		require.NoError(t, err)
		for _, text := range []string{
			string(asJSON), strconv.FormatFloat(v, 'f', -1, 64), strconv.FormatFloat(v, 'g', -1, 64),
			fmt.Sprintf("%.17g", v), fmt.Sprintf("%.16e", v),
		} {
			text = strings.Replace(text, "e+", "e", 1)
			got, err := expr.Number(text)
			require.NoError(t, err, text)
			if n, is := got.(int64); is {
				require.Equal(t, v, float64(n), text)
				continue
			}
			require.Equal(t, v, got, text)
		}
	})
}

// TestNumbersOfManyDigitsAreComparedAndCopied also checks that they cannot be calculated with.
func TestNumbersOfManyDigitsAreComparedAndCopied(t *testing.T) {
	e := env(t)
	const big = json.Number("12345678901234567890")
	objects := map[string]any{
		"data": map[string]any{"more": json.Number("12345678901234567891"), "rate": 12345678901234567168.0, "amount": int64(1)},
		"event": map[string]any{
			"big": big, "same": big, "list": []any{big}, "double": 9007199254740992.0, "int": int64(9007199254740993), "part": json.Number("0.1234567890123456789"),
		},
	}
	for text, want := range map[string]any{
		"event.big": big, "[event.big]": []any{big}, "{'a': event.list}": map[string]any{"a": []any{big}}, "string(event.big)": "12345678901234567890",
		"event.big == event.same": true, "event.big == data.more": false, "event.big != data.more": true, "event.big < data.more": true,
		"event.big == 12345678901234567890u": true, "12345678901234567890u == event.big": true, "12345678901234567889u < event.big": true,
		"event.big == 1.2345678901234567e19": false, "event.big > 5": true, "5 < event.big": true, "5.0 >= event.big": false, "event.big == null": false,
		"data.rate == event.big": false, "data.rate < event.big": true, "data.amount <= event.big": true, "event.big in event.list": true,
		"event.big in [data.more]": false, "event.big == 'x'": false, "event.list == [event.same]": true, "has(event.big)": true,
		"event.part < 0.5": true, "event.int == event.double": false, "event.int > event.double": true, "event.double == 9007199254740993": false,
		"event.double < 9007199254740993": true, "event.double == 9007199254740992": true, "event.double == 9007199254740992u": true,
		"string(event.int)": "9007199254740993", "string(data.amount == 1)": "true",
	} {
		x, err := e.Compile(text, expr.Any)
		require.NoError(t, err, text)
		got, err := x.Eval(objects)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{
		"event.big + 1", "1 - event.big", "event.big * 2.0", "event.big / 2", "event.big % 2", "-event.big", "int(event.big)", "double(event.big)",
		"event.big < 'x'", "'x' < event.big", "event.list[event.big]",
	} {
		x, err := e.Compile(text, expr.Any)
		require.NoError(t, err, text)
		_, err = x.Eval(objects)
		require.Error(t, err, text)
	}
	x, err := e.Compile("event.big + 1", expr.Any)
	require.NoError(t, err)
	_, err = x.Eval(objects)
	require.ErrorContains(t, err, "12345678901234567890 has more digits than expressions calculate with")
}
