package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestAnOrderFlowOnPostgresAlone_A01_A14 runs the program on a database of its own, and again: nothing is done twice. What
// it prints is what the README shows.
func TestAnOrderFlowOnPostgresAlone_A01_A14(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for range 2 {
		var out strings.Builder
		require.NoError(t, run(t.Context(), testkit.DatabaseURL(t, pool), &out))
		require.Contains(t, string(readme), "\n```text\n"+out.String()+"```\n")
	}
}
