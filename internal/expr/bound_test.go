package expr_test

import (
	"encoding/json"
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
		"lists of one list":              nested("[0]", "[_].map(v,[v,v,v,v,v,v,v,v,v,v])", 7),
		"lists in a chain":               bomb,
		"maps of one map":                "[{}]" + strings.Repeat(".map(v,{'a':v,'b':v})", 28),
		"a list added to itself":         "[[0]]" + strings.Repeat(".map(v,v+v)", 28),
		"a comparison of two":            bomb + " == " + bomb,
		"a search in one":                bomb + "[0] in " + bomb,
		"a text many times":              "[1,2,3,4,5,6,7,8,9,10].map(i, [event.text, event.text])",
		"a long list many times":         "[1,2,3,4,5,6,7,8,9,10,11,12].map(i, event.long)",
		"a comparison again and again":   "event.long.all(i, event.long == event.long)",
		"a comprehension within one":     "event.long.all(i, event.long.all(j, i + j >= 0))",
		"a text counted again and again": "event.long.all(i, event.text.size() > 1)",
		"a text that doubles":            "['xxxxxxxxxx']" + strings.Repeat(".map(v,v+v)", 28),
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

// TestANumberOfAMillionDigitsIsRefused: its comparison took 15 s and 2 GB.
func TestANumberOfAMillionDigitsIsRefused(t *testing.T) {
	e := env(t)
	digits := strings.Repeat("9", 1_000_000)
	for _, n := range []string{digits, "-" + digits, "0." + digits, "1e999999999", "1e-999999999"} {
		objects := map[string]any{"data": map[string]any{}, "event": map[string]any{"n": json.Number(n)}}
		for _, text := range []string{"event.n == 1", "event.n < 1", "event.n", "event.n == event.n", "string(event.n)"} {
			x, err := e.Compile(text, expr.Any)
			require.NoError(t, err)
			_, err = x.Eval(objects)
			require.ErrorContains(t, err, "digits")
			require.Less(t, len(err.Error()), 200)
		}
	}
}

// TestAnErrorOfAnEvaluationQuotesNoValue: logs and dead letters have these errors.
func TestAnErrorOfAnEvaluationQuotesNoValue(t *testing.T) {
	e := env(t)
	const card = "4111-1111-1111-1111 Jane Doe ["
	objects := map[string]any{"data": map[string]any{}, "event": map[string]any{"card": card, "at": "2026-01-02T03:04:05Z", "map": map[string]any{"a": "b"}}}
	for text, want := range map[string]string{
		"timestamp(event.card)":                             "invalid RFC 3339 timestamp",
		"event.map[event.card]":                             "no such key",
		"event.at.matches(event.card)":                      "error parsing regexp",
		"timestamp(event.at).getHours(event.card)":          "",
		"timestamp(event.at).getHours('+99:' + event.card)": "",
		"timestamp(event.at).getHours(event.card + ':00')":  "",
		"duration(event.card)":                              "",
		"int(event.card)":                                   "",
		"double(event.card)":                                "",
		"bool(event.card)":                                  "",
		"bytes(event.card) == 1":                            "",
		"event.card + 1":                                    "",
		"event.card < 1":                                    "",
		"{1: event.card}":                                   "a key is of type int",
		"event.nothing":                                     "event.nothing is not set",
	} {
		x, err := e.Compile(text, expr.Any)
		if err != nil {
			continue
		}
		if v, err := x.Eval(objects); err != nil {
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "4111", text)
			require.NotContains(t, err.Error(), "Jane", text)
		} else {
			require.Empty(t, want, "%s gives %v", text, v)
		}
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
