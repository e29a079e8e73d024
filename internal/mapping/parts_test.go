package mapping

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRouteIsJavas(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ expression, replacement, value, topic string }{
		{`(?<routedByValue>.*)`, `outbox.event.${routedByValue}`, "Order", "outbox.event.Order"},
		{`(.*)`, `$0.$1`, "a", "a.a"},
		{`(a)(b)?c`, `$1$2-$11`, "ac", "a-a1"}, // a group that did not match is empty; $11 is $1 and a 1
		{`a|ab`, `x`, "ab", "xb"},              // the whole value matches, the first match is shorter
		{`a`, `x`, "ba", "ba"},                 // a match of a part of the value does not count
		{`.*`, `a\$b\\c`, "v", `a$b\c`},
		{`\Q[[\E(.*)`, `$1`, "[[x", "x"},
		{`(?i)ORDER`, `o`, "order", "o"},
		{`[\[a]+`, `b`, "[a", "b"},
		{`[[:alpha:]]+`, `b`, "xy", "b"},
	} {
		r, err := newRoute(row.expression, row.replacement)
		require.NoError(t, err, row.expression)
		require.Equal(t, row.topic, r.topic(row.value), row.expression)
	}
}

func TestPropertiesAreJavas(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[string]string{
		"a=b":                             {"a": "b"},
		" a : b \n\n# c=d\n! e\nf g=h":    {"a": "b ", "f": "g=h"},
		"a=b\\\n   c\\\r\n d\ne":          {"a": "bcd", "e": ""},
		`a\ b\==c\td\u0041\ud83d\ude00\z`: {"a b=": "c\tdA😀z"},
		"a\\\\\nb=1":                      {`a\`: "", "b": "1"},
		"a=1\na=2":                        {"a": "2"},
		"a=\\u12":                         {"a": "\uFFFD12"},
		"a\\":                             {"a": ""},
		"":                                {},
	} {
		require.Equal(t, want, properties(text), "%q", text)
	}
}

func TestOnlyTraceParentsAreCarried(t *testing.T) {
	t.Parallel()
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for text, want := range map[string]bool{
		good: true, "01" + good[2:] + "-more": true, "": false, good + "-more": false, good[:54]: false, "ff" + good[2:]: false,
		strings.ToUpper(good): false, strings.Replace(good, "0af7651916cd43dd8448eb211c80319c", strings.Repeat("0", 32), 1): false,
		strings.Replace(good, "b7ad6b7169203331", strings.Repeat("0", 16), 1): false, strings.ReplaceAll(good, "-", "_"): false,
	} {
		require.Equal(t, want, isTraceParent(text), text)
	}
}

func FuzzProperties(f *testing.F) {
	for _, s := range []string{"a=b", `a\ b=c\u00e9`, "a\\\nb", "#\n!\n=:", `\u`, `\ud83d\u`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name, value := range properties(text) {
			require.LessOrEqual(t, len(name)+len(value), 3*len(text))
		}
	})
}

// FuzzExpand: an expanded text is JSON, and contains the same data except the members that may be left out.
func FuzzExpand(f *testing.F) {
	for _, s := range []string{`{"a":null,"b":[]}`, `[null,[],{"a":[ ]}]`, `{"a":{"b":null},"null":"[]"}`, `{"\"":null,"x":1}`, `{}`, `{"a":[[],null]}`, `{`} {
		f.Add(s)
	}
	m, err := New(Config{})
	require.NoError(f, err)
	whole, err := New(Config{JSONNull: OptionalBytes, JSONEmptyArray: OptionalString})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := m.expand([]byte(text))
		if !ok {
			return
		}
		all, ok := whole.expand([]byte(text))
		require.True(t, ok)
		require.Equal(t, parsed(t, []byte(text)), parsed(t, all))
		before := parsed(t, []byte(text))
		after := parsed(t, got)
		if members(text) == count(before) { // if a name occurs twice the last one counts, and it may be left out
			require.Equal(t, prune(before), after)
		}
	})
}

func parsed(t *testing.T, text []byte) (v any) {
	require.NoError(t, json.Unmarshal(text, &v), "%s", text)
	return v
}

// members counts the members of the objects in text.
func members(text string) (n int) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err != nil {
			return n
		}
		_, isText := token.(string)
		rest := strings.TrimLeft(text[d.InputOffset():], " \t\r\n")
		if isText && strings.HasPrefix(rest, ":") {
			n++
		}
	}
}

func count(v any) (n int) {
	switch v := v.(type) {
	case map[string]any:
		for _, member := range v {
			n += 1 + count(member)
		}
	case []any:
		for _, item := range v {
			n += count(item)
		}
	}
	return n
}

func prune(v any) any {
	switch v := v.(type) {
	case map[string]any:
		maps.DeleteFunc(v, func(_ string, member any) bool {
			list, isList := member.([]any)
			return member == nil || isList && len(list) == 0
		})
		for k := range v {
			v[k] = prune(v[k])
		}
	case []any:
		for i := range v {
			v[i] = prune(v[i])
		}
	}
	return v
}

func TestDeeplyNestedJSONIsNotExpanded(t *testing.T) {
	t.Parallel()
	m, err := New(Config{})
	require.NoError(t, err)
	deep := strings.Repeat(`{"a":`, maxDepth+2) + "null" + strings.Repeat("}", maxDepth+2)
	_, ok := m.expand([]byte(deep))
	require.False(t, ok)
}
