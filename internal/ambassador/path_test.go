package ambassador_test

import (
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/ambassador"
)

// FuzzCheckPath: a path that passes stays below the base, on a server that decodes any number of times, treats backslashes as
// slashes, and then cleans the path.
func FuzzCheckPath(f *testing.F) {
	for _, p := range []string{
		"/a", "/a/%2e%2e", "/%252e%252e/b", "/a%2fb/..;x", "/%5c..%5c", "/%25/50%25", "/a/...", "/%2525252e%2525252e", "/.%2e",
	} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if ambassador.CheckPath(p) != nil {
			return
		}
		u, err := url.Parse("http://host/base" + p)
		require.NoError(t, err)
		require.Equal(t, "host", u.Host)
		require.Empty(t, u.RawQuery+u.Fragment)
		for text := p; ; {
			seen := strings.ReplaceAll(text, `\`, "/")
			require.True(t, strings.HasPrefix(path.Clean("/base"+seen)+"/", "/base/"), "%q as %q", p, seen)
			require.NotContains(t, strings.Split(seen, "/"), "..")
			decoded, err := url.PathUnescape(text)
			if err != nil || decoded == text {
				return
			}
			text = decoded
		}
	})
}

func TestEscapedVariablesPass(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"7", "a/b", "50%", "100%25", "é ü", "a;b=c", "...", "a..b", "?x#y", "10.0.0.1", "https://a.example/b", "+49 30"} {
		require.NoError(t, ambassador.CheckPath("/things/"+url.PathEscape(value)+"/parts"), value)
	}
}
