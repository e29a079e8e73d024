package commands_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/docs/commands"
)

func TestCommandsAreReadAsAShellReadsThem(t *testing.T) {
	t.Parallel()
	found, err := commands.Parse("a.md", "Say `troupe dlq list --all`, or `troupe_x`, or `it's`.\n\n"+
		"    $ A=1 troupe saga show 'order/o 1' --output=json | jq '.a' > x   # why\n"+
		"    troupe: not a command\n"+
		"    go run ./cmd/troupe demo \\\n      --limit 5 && outbox-relay check; bin/outbox-relay run\n"+
		"    .ci/run\n\n"+
		"```sql\ntroupe not here\n```\n```\ntroupe version -o \"js\"on\n```\n")
	require.NoError(t, err)
	require.Equal(t, []commands.Command{
		{Page: "a.md", Line: 1, Prose: true, Args: []string{"troupe", "dlq", "list", "--all"}},
		{Page: "a.md", Line: 3, Env: []string{"A=1"}, Args: []string{"troupe", "saga", "show", "order/o 1", "--output=json"}},
		{Page: "a.md", Line: 5, Args: []string{"troupe", "demo", "--limit", "5"}},
		{Page: "a.md", Line: 5, Args: []string{"outbox-relay", "check"}},
		{Page: "a.md", Line: 5, Args: []string{"outbox-relay", "run"}},
		{Page: "a.md", Line: 7, Args: []string{".ci/run"}, Script: true},
		{Page: "a.md", Line: 13, Args: []string{"troupe", "version", "-o", "json"}},
	}, found)
	require.Equal(t, "a.md:13: troupe version -o json", found[6].String())

	found, err = commands.Parse("a.md", "    psql $URL -c \"SELECT '\\\"a\\\"'\n      FROM x\"\n    troupe version\n")
	require.NoError(t, err)
	require.Equal(t, []commands.Command{
		{Page: "a.md", Line: 1, Args: []string{"psql", "$URL", "-c", `SELECT '"a"' FROM x`}},
		{Page: "a.md", Line: 3, Args: []string{"troupe", "version"}},
	}, found)

	_, err = commands.Parse("a.md", "text\n\n    troupe saga list 'o-1\n")
	require.EqualError(t, err, "a.md:3: troupe saga list 'o-1: neither a word nor a quoted one: 'o-1")
}
