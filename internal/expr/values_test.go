package expr_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/expr"
)

func TestMapsAreIteratedInTheOrderOfTheirKeys(t *testing.T) {
	e := env(t)
	offers := map[string]any{"ups": int64(1), "dhl": map[string]any{"b": int64(1), "a": int64(2), "c": int64(3)}, "gls": int64(4), "dpd": int64(3)}
	objects := map[string]any{"data": map[string]any{"more": offers}, "event": map[string]any{"offers": offers}}
	for text, want := range map[string]any{
		"event.offers.map(k, k)":                                    []any{"dhl", "dpd", "gls", "ups"},
		"data.more.map(k, k)":                                       []any{"dhl", "dpd", "gls", "ups"},
		"event.offers.dhl.map(k, k)":                                []any{"a", "b", "c"},
		"[event.offers].map(m, m.map(k, k))[0]":                     []any{"dhl", "dpd", "gls", "ups"},
		"{'z': 1, 'a': 2, 'm': 3}.map(k, k)":                        []any{"a", "m", "z"},
		"{'z': event.offers, 'a': 2, 'm': 3}.map(k, k)":             []any{"a", "m", "z"},
		"{'x': {'z': data.more, 'a': 2, 'm': 3}}.x.map(k, k)":       []any{"a", "m", "z"},
		"event.offers.filter(k, k != 'dhl')":                        []any{"dpd", "gls", "ups"},
		"event.offers == event.offers && data.more == event.offers": true,
		"event.offers == {'a': 1}":                                  false,
		"[{'b': 1, 'a': 2}].map(m, m.map(k, k))":                    []any{[]any{"a", "b"}},
		"{10: 'x', 9: 'y', 100: 'z'}.map(k, k)":                     []any{int64(9), int64(10), int64(100)},
		"event.map(k, k)":                                           []any{"offers"},
	} {
		x, err := e.Compile(text, expr.Any)
		require.NoError(t, err, text)
		for range 20 {
			got, err := x.Eval(objects)
			require.NoError(t, err, text)
			require.Equal(t, want, got, text)
		}
	}
}

func TestArithmeticOfAnEventsNumbersDoesNotDependOnTheirForm(t *testing.T) {
	e := env(t)
	for text, want := range map[string]any{
		"event.n * 1.5": 15.0, "1.5 * event.n": 15.0, "event.n + 0.5": 10.5, "event.n - 0.5": 9.5, "event.n / 4.0": 2.5,
		"40.0 / event.n": 4.0, "event.n < 10.5": true, "event.n == 10.0": true, "event.n == 10": true, "event.n in [10]": true,
		"string(event.n)": "10", "[1, 2, 3].map(x, x * event.n)[2] == 30": true, "event.n * data.rate": 5.0,
	} {
		x, err := e.Compile(text, expr.Any)
		require.NoError(t, err, text)
		for _, n := range []any{int64(10), 10.0} {
			got, err := x.Eval(map[string]any{"event": map[string]any{"n": n}, "data": map[string]any{"rate": 0.5}})
			require.NoError(t, err, "%s of %T", text, n)
			require.Equal(t, want, got, "%s of %T", text, n)
		}
	}
	_, err := e.Compile("data.amount * 1.5", expr.Any)
	require.ErrorContains(t, err, "no matching overload", "declared types are checked when it is compiled")
	for _, text := range []string{"event.n * 'x'", "event.n + true", "'x' + event.n"} {
		x, err := e.Compile(text, expr.Any)
		if err != nil {
			continue
		}
		_, err = x.Eval(map[string]any{"event": map[string]any{"n": int64(1)}})
		require.Error(t, err, text)
	}
}
