package doctor_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/doctor"
	"github.com/troupe-go/troupe/testkit"
)

// TestTheGrantsInDocsSecurityAreThoseThatAreNeeded: for each part, docs/security.md has the statements that a role without any right
// lacks, no more and no less. That a role with just these can work, the tests of the packages show, which the page names.
func TestTheGrantsInDocsSecurityAreThoseThatAreNeeded(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/security.md")
	require.NoError(t, err)
	page := strings.Join(strings.Fields(string(text)), " ")
	pool := testkit.Database(t)
	role := roleOf(t, pool, "page")
	for _, part := range doctor.Parts() {
		r := examine(t, doctor.Config{Database: config(pool), Parts: []doctor.Part{part}, Role: role})
		require.False(t, r.OK())
		for _, f := range of(r, "privileges") {
			for _, sql := range strings.Split(f.Remedy, "\n") {
				want := strings.ReplaceAll(strings.ReplaceAll(sql, "\""+role+"\"", role), " TO "+role+";", " TO "+nameOf(part)+";")
				if strings.Contains(sql, "TRUNCATE") {
					want = want[:strings.Index(want, ",")] // one of a ring of tables, which the page names by a loop
					want = want[:strings.LastIndex(want, "_")]
				}
				if !strings.Contains(page, want) && !strings.HasPrefix(want, "GRANT USAGE ON SCHEMA") {
					t.Errorf("docs/security.md does not have, for %s:\n%s", part, want)
				}
			}
		}
	}
}

// nameOf is the role of the page.
func nameOf(part doctor.Part) string {
	switch part {
	case doctor.Relay, doctor.MappedRelay:
		return "relay"
	case doctor.Watch:
		return "watcher"
	case doctor.Operator, doctor.SagaOperator:
		return "operator"
	}
	return "service"
}
