package expr_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/expr"
)

func env(t testing.TB) *expr.Env {
	t.Helper()
	e, err := expr.NewEnv(map[string]expr.Fields{
		"data": {"amount": expr.Int, "name": expr.String, "legal": expr.Bool, "rate": expr.Double, "more": expr.Any}, "event": nil,
	})
	require.NoError(t, err)
	return e
}

func TestExpressionsGiveValues(t *testing.T) {
	e := env(t)
	objects := map[string]any{
		"data":  map[string]any{"amount": int64(9999), "name": "x", "legal": true},
		"event": map[string]any{"id": "p-1", "lines": []any{int64(1), "two"}},
	}
	for text, want := range map[string]any{
		"data.amount < 10000 && data.legal":     true,
		"data.amount + 1":                       int64(10000),
		"event.id":                              "p-1",
		"event.lines[1]":                        "two",
		"event.lines":                           []any{int64(1), "two"},
		"has(data.rate) ? data.rate : 0.5":      0.5,
		"{'a': data.name, 'b': [1, null]}":      map[string]any{"a": "x", "b": []any{int64(1), nil}},
		"data.legal || data.rate > 1.0":         true,
		"has(event.reason) ? event.reason : ''": "",
	} {
		x, err := e.Compile(text, expr.Any)
		require.NoError(t, err, text)
		got, err := x.Eval(objects)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestMistakesAreFoundWhenCompiling(t *testing.T) {
	e := env(t)
	for text, want := range map[string]string{
		"data.amout < 1":                  `column 5`,
		"data.amount < 'x'":               `no matching overload`,
		"data.name":                       `is of type string, want bool`,
		"other.x":                         `unknown name 'other'`,
		"data.amount <":                   `Syntax error`,
		strings.Repeat("(", 100) + "true": `recursion`,
		"'" + strings.Repeat("x", 3000) + "' == 'y'": `exceeds limit`,
	} {
		_, err := e.Compile(text, expr.Bool)
		require.ErrorContains(t, err, want, text)
	}
}

func TestAnUnsetFieldIsToldApart(t *testing.T) {
	e := env(t)
	x, err := e.Compile("data.amount < 10", expr.Bool)
	require.NoError(t, err)
	_, err = x.Holds(map[string]any{"data": map[string]any{}, "event": map[string]any{}})
	require.ErrorIs(t, err, expr.ErrUnset)
	require.ErrorContains(t, err, "data.amount")

	x, err = e.Compile("1 / data.amount == 1", expr.Bool)
	require.NoError(t, err)
	_, err = x.Holds(map[string]any{"data": map[string]any{"amount": int64(0)}})
	require.Error(t, err)
	require.NotErrorIs(t, err, expr.ErrUnset)
}

func TestReadsAndBounds(t *testing.T) {
	x, err := env(t).Compile("data.amount < 10000 && (!has(data.rate) || 0.5 >= data.rate)", expr.Bool)
	require.NoError(t, err)
	require.ElementsMatch(t, []expr.Read{{"data", "amount", false}, {"data", "rate", true}, {"data", "rate", false}}, x.Reads())
	require.Equal(t, []expr.Bound{{"data", "amount", int64(10000), true}, {"data", "rate", 0.5, true}}, x.Bounds())
}
