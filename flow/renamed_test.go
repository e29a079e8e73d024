package flow_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// TestJoinsAndExpectationsOfARenamedGroupEnd runs the statements that docs/participant.md has for a group that was renamed.
func TestJoinsAndExpectationsOfARenamedGroupEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stage testkit.StageConfig
		begin func(*testkit.Stage)
		after time.Duration
		said  string
	}{
		"expectation": {
			observerStage(t), func(s *testkit.Stage) { s.Send(event(s, "payment", "o-1", Paid{999})) }, 31 * time.Second, timedOut,
		},
		"join": {
			shippingStage(t), func(s *testkit.Stage) { s.Send(event(s, "payment", "o-1", Paid{999})) }, time.Hour,
			`failure o-1 TimedOut {"Missing":["FLOW.inventory.events Reserved"]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testkit.NewStage(t, test.stage)
			test.begin(s)
			s.Settle()
			group := s.Hop.String()
			rename(t, s, group, "former")
			require.Zero(t, count(t, s, `SELECT (SELECT count(*) FROM troupe.deadlines WHERE consumer_group = $1)
				+ (SELECT count(*) FROM troupe.joins WHERE consumer_group = $1) + (SELECT count(*) FROM troupe.join_parts WHERE consumer_group = $1)
				+ (SELECT count(*) FROM troupe.expectations WHERE consumer_group = $1)`, group))
			rename(t, s, "former", group)
			s.Advance(test.after)
			s.Settle()
			require.Equal(t, []string{strings.ReplaceAll(test.said, "FLOW", s.Hop.Flow())}, said(s))
		})
	}
}

// rename runs the documented statements.
func rename(t *testing.T, s *testkit.Stage, from, to string) {
	t.Helper()
	text, err := os.ReadFile("../docs/participant.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "### When you rename a group")
	require.True(t, found)
	_, section, _ = strings.Cut(section, "```sql")
	sql, _, found := strings.Cut(section, "```")
	require.True(t, found)
	_, err = s.Pool.Exec(t.Context(), strings.NewReplacer("'new/'", "'"+to+"/'", "'new'", "'"+to+"'", "'old'", "'"+from+"'").Replace(sql))
	require.NoError(t, err)
}
