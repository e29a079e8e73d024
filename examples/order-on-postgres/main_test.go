package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestAnOrderFlowOnPostgresAlone runs the program twice on one database: nothing is done twice. The README and the tutorial
// show its output.
func TestAnOrderFlowOnPostgresAlone(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	pages := make(map[string]string)
	for _, path := range []string{"README.md", "../../docs/sagas.md"} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		pages[path] = string(text)
	}
	for range 2 {
		var out strings.Builder
		require.NoError(t, run(t.Context(), testkit.DatabaseURL(t, pool), &out))
		for path, text := range pages {
			require.Contains(t, text, "\n```text\n"+out.String()+"```\n", path)
		}
	}
}
