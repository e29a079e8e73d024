package jsontext_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/jsontext"
)

func TestATextHasALimitOfValues(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text    string
		refused bool
	}{
		"a list of numbers":                {"[" + strings.Repeat("0,", jsontext.MaxValues+1) + "0]", true},
		"a list of empty objects":          {"[" + strings.Repeat("{},", jsontext.MaxValues) + "{}]", true},
		"as many empty objects as may be":  {"[" + strings.Repeat("{},", jsontext.MaxValues-2) + "{}]", false},
		"as many empty lists as may be":    {"[" + strings.Repeat("[ ],", jsontext.MaxValues-2) + "{\n}]", false},
		"one empty object too many":        {"[" + strings.Repeat("{},", jsontext.MaxValues-1) + "{}]", true},
		"lists within each other":          {strings.Repeat("[", 2*jsontext.MaxValues+1), true},
		"half as many, with blanks":        {"[" + strings.Repeat("0,    ", jsontext.MaxValues/2) + "0]", false},
		"a long text with commas":          {`["` + strings.Repeat(",[{", jsontext.MaxValues) + `"]`, false},
		"a long text with escaped quotes":  {`["` + strings.Repeat(`\",`, jsontext.MaxValues) + `"]`, false},
		"a quote behind an escaped escape": {`["\\",` + strings.Repeat("0,", jsontext.MaxValues) + "0]", true},
		"a text that is too short to tell": {"[" + strings.Repeat("0,", jsontext.MaxValues-2) + "0]", false},
	} {
		err := jsontext.CheckValues([]byte(c.text))
		if c.refused {
			require.ErrorContains(t, err, "more than 1048576 values", name)
		} else {
			require.NoError(t, err, name)
		}
	}
}

func TestExponentsAreCounted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		`[1e5,1E5,1.5e-3,12.0E+1]`:           4,
		`[true,false,null,15,"1e5","\"1e5"]`: 0,
		`{"1e5":1e1000}`:                     1,
	} {
		require.Equal(t, want, jsontext.Exponents([]byte(text)), text)
	}
}

// A text of four megabytes, with 99 levels and elements of two bytes, would become 400 MB.
func TestATextIsNotIndentedIfThatWouldMultiplyItsSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"[[[\"[": [1,{"b" : {} , "c":[ ]}]}`: `{
>   "[[[\"[": [
>     1,
>     {
>       "b": {},
>       "c": []
>     }
>   ]
> }`,
		`{"a": [1`: `{"a": [1`,
		"]]]]":     "]]]]",
	} {
		require.Equal(t, want, string(jsontext.Indent([]byte(text), "> ")))
	}
	for name, text := range map[string]string{
		"deep":  strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		"wide":  strings.Repeat("[", 99) + strings.Repeat("1,", 2_000_000) + "1" + strings.Repeat("]", 99),
		"large": "[" + strings.Repeat("0,", 4<<20) + "0]",
	} {
		require.True(t, text == string(jsontext.Indent([]byte(text), "")), name)
	}
	flat := "[" + strings.Repeat(`{"id":1,"list":[]},`, 100_000) + "{}]"
	require.Contains(t, string(jsontext.Indent([]byte(flat), "")), "\n  {\n    \"id\": 1,\n    \"list\": []\n  },\n")
}
