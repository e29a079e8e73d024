package expr_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/expr"
)

// nested returns text, n times put into the placeholder of each.
func nested(text, each string, n int) string {
	for range n {
		text = strings.ReplaceAll(each, "_", text)
	}
	return text
}

// TestAnEvaluationOfAnyValueEnds evaluates expressions of a few hundred characters that would run for hours, or need gigabytes.
func TestAnEvaluationOfAnyValueEnds(t *testing.T) {
	e := env(t)
	long := make([]any, 100_000)
	for i := range long {
		long[i] = int64(i)
	}
	objects := map[string]any{
		"data": map[string]any{}, "event": map[string]any{"long": long, "text": strings.Repeat("x", 1_000_000)},
	}
	bomb := "[[0]]" + strings.Repeat(".map(v,[v,v])", 28)
	for name, text := range map[string]string{
		"lists of one list":            nested("[0]", "[_].map(v,[v,v,v,v,v,v,v,v,v,v])", 7),
		"lists in a chain":             bomb,
		"maps of one map":              "[{}]" + strings.Repeat(".map(v,{'a':v,'b':v})", 28),
		"a list added to itself":       "[[0]]" + strings.Repeat(".map(v,v+v)", 28),
		"a comparison of two":          bomb + " == " + bomb,
		"a search in one":              bomb + "[0] in " + bomb,
		"a text many times":            "[1,2,3,4,5,6,7,8,9,10].map(i, [event.text, event.text])",
		"a long list many times":       "[1,2,3,4,5,6,7,8,9,10,11,12].map(i, event.long)",
		"a comparison again and again": "event.long.all(i, event.long == event.long)",
		"a comprehension within one":   "event.long.all(i, event.long.all(j, i + j >= 0))",
		"a text that doubles":          "['xxxxxxxxxx']" + strings.Repeat(".map(v,v+v)", 28),
	} {
		t.Run(name, func(t *testing.T) {
			x, err := e.Compile(text, expr.Any)
			require.NoError(t, err)
			_, err = x.Eval(objects)
			require.ErrorIs(t, err, expr.ErrTooLarge)
			require.ErrorContains(t, err, fmt.Sprintf("%q", text))
			require.Regexp(t, `more than \d+ (steps|bytes)`, err.Error())
		})
	}
}

// TestALargeDocumentIsPassedOn: a value that fits into a message costs little, however it is wrapped.
func TestALargeDocumentIsPassedOn(t *testing.T) {
	e := env(t)
	rows := make([]any, 5000)
	for i := range rows {
		rows[i] = map[string]any{"sku": "sku-1", "quantity": int64(i), "note": strings.Repeat("n", 100)}
	}
	objects := map[string]any{"data": map[string]any{}, "event": map[string]any{"rows": rows}}
	for text, want := range map[string]any{
		"event.rows":                       rows,
		"{'a': {'b': [event.rows]}}":       map[string]any{"a": map[string]any{"b": []any{rows}}},
		"event.rows.map(r, r.quantity)[1]": int64(1),
		"event.rows == event.rows":         true,
	} {
		x, err := e.Compile(text, expr.Any)
		require.NoError(t, err)
		got, err := x.Eval(objects)
		require.NoError(t, err)
		require.Equal(t, want, got, text)
	}
}

func BenchmarkEval(b *testing.B) {
	e := env(b)
	objects := map[string]any{"data": map[string]any{"amount": int64(9999)}, "event": map[string]any{"lines": []any{int64(1), int64(2), int64(3)}}}
	for _, text := range []string{"data.amount < 10000", "{'a': data.amount, 'b': event.lines}", "event.lines.map(l, l * 2)"} {
		x, err := e.Compile(text, expr.Any)
		require.NoError(b, err)
		b.Run(text, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := x.Eval(objects); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
