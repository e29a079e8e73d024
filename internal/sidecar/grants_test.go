package sidecar

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
)

const grantsHead = `# Grants

What ` + "`outbox-relay grants PART --role NAME`" + ` prints for each part, here with the part's name as the role. Tests write this page:
` + "`go test ./internal/sidecar -run Grants -update`" + `. [Security](security.md#postgres) says which part is whose.
`

// TestTheGrantsPageIsWhatTheCommandPrints compares docs/grants.md with the list that roles are checked against.
func TestTheGrantsPageIsWhatTheCommandPrints(t *testing.T) {
	t.Parallel()
	var page strings.Builder
	page.WriteString(grantsHead)
	for _, part := range grants.Parts() {
		role := strings.ReplaceAll(string(part), "-", "_")
		printed, _ := printedGrants(t, exitDone, string(part), "--role", role)
		_, _ = fmt.Fprintf(&page, "\n## %s\n\n", part)
		if included := part.Includes(); included != "" {
			_, _ = fmt.Fprintf(&page, "The rights of [%s](#%s), and these:\n\n", included, included)
			first, _ := printedGrants(t, exitDone, string(included), "--role", role)
			rest, found := strings.CutPrefix(printed, first)
			require.True(t, found, "the rights of %s come first among the rights of %s", included, part)
			printed = rest
		}
		_, _ = fmt.Fprintf(&page, "```sql\n%s```\n", printed)
	}
	if *rewrite {
		require.NoError(t, os.WriteFile("../../docs/grants.md", []byte(page.String()), 0o644))
	}
	written, err := os.ReadFile("../../docs/grants.md")
	require.NoError(t, err)
	require.Equal(t, page.String(), string(written), "go test ./internal/sidecar -run Grants -update")
}

// printedGrants runs the command.
func printedGrants(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	p := Program{Args: append([]string{"grants"}, args...), Stdout: &out, Stderr: &errs, Environ: []string{}}
	require.Equal(t, code, p.Main(t.Context()), errs.String())
	return out.String(), errs.String()
}

func TestGrantsNeedsAPartAndARole(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "name a part: writer, relay"},
		{[]string{"everything", "--role", "r"}, `part "everything": want one of writer`},
		{[]string{"relay"}, "name the role with --role"},
	} {
		_, stderr := printedGrants(t, exitUsage, c.args...)
		require.Contains(t, stderr, c.want)
	}
	stdout, _ := printedGrants(t, exitDone, "viewer", "operator", "--role", "Ann O'Neill")
	require.Contains(t, stdout, `GRANT USAGE ON SCHEMA troupe TO "Ann O'Neill";`)
	require.Equal(t, 1, strings.Count(stdout, "GRANT USAGE"))
}
