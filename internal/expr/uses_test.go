package expr_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/expr"
)

// TestUsesDistinguishesCopiesFromOtherUses also in lists, maps and macros.
func TestUsesDistinguishesCopiesFromOtherUses(t *testing.T) {
	t.Parallel()
	env, err := expr.NewEnv(map[string]expr.Fields{"data": {"email": expr.String, "list": expr.Any}, "event": nil})
	require.NoError(t, err)
	for text, want := range map[string][]string{
		"event.email":                                          {"copy event.email"},
		"data.email + 'x'":                                     {"use data.email"},
		"data.email == ''":                                     nil,
		"'' != event['email']":                                 nil,
		"event.a.email == null":                                nil,
		"has(event.a.email)":                                   nil,
		"event.email == 'a@b'":                                 {"use event.email"},
		"event.email in ['a@b']":                               {"use event.email"},
		"data.email.endsWith('x')":                             {"use data.email"},
		"has(event.email) ? event.email : data.email":          {"copy event.email", "copy data.email"},
		"data.email < 'm' ? 'a' : data.email":                  {"use data.email", "copy data.email"},
		"string(event.email)":                                  {"copy event.email"},
		"{'to': {'mail': event.email}}":                        {"copy event.email at to.mail"},
		"[event.email]":                                        {"copy event.email"},
		"event.passengers[0].name":                             {"copy event.passengers.name"},
		"event.passengers[data.list[0]].name":                  {"copy event.passengers.name", "use data.list"},
		"event['passengers'][0]['name']":                       {"copy event.passengers.name"},
		"event.passengers.map(p, p.name)":                      {"copy event.passengers.name"},
		"event.passengers.map(p, {'n': p.name})":               {"copy event.passengers.name at n"},
		"event.passengers.filter(p, p.name == 'x')":            {"use event.passengers.name", "copy event.passengers"},
		"event.passengers.exists(p, p.name.startsWith('x'))":   {"use event.passengers.name"},
		"event.passengers.filter(p, p.age > 3).map(p, p.name)": {"use event.passengers.age", "use event.passengers", "copy event.passengers.name"},
		"event.passengers.map(p, p.tags.exists(g, g == 'x') ? p.name : p.nick)[0]": {"use event.passengers.tags", "copy event.passengers.name", "copy event.passengers.nick"},
	} {
		x, err := env.Compile(text, expr.Any)
		require.NoError(t, err, text)
		var got []string
		for _, u := range x.Uses() {
			how, at := "use", ""
			if u.Copied {
				how = "copy"
			}
			if u.Copied && u.At != "" {
				at = " at " + u.At
			}
			if line := fmt.Sprintf("%s %s.%s%s", how, u.Object, u.Path, at); !contains(got, line) {
				got = append(got, line)
			}
		}
		require.ElementsMatch(t, want, got, text)
	}
}

func contains(all []string, one string) bool {
	for _, s := range all {
		if s == one {
			return true
		}
	}
	return false
}
