package migrations_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMigrationsOnlyAdd: programs of the previous version work with the tables of this one, as docs/upgrades.md promises, so that
// an upgrade needs no downtime and can be reverted. A table or column that is no longer used stays until no supported version
// uses it.
func TestMigrationsOnlyAdd(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("sql/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	comment := regexp.MustCompile(`--[^\n]*`)
	takes := regexp.MustCompile(`(?i)\b(DROP\s+(TABLE|COLUMN|SCHEMA|SEQUENCE|VIEW)|RENAME|SET\s+NOT\s+NULL|ALTER\s+COLUMN\s+\w+\s+TYPE|DROP\s+DEFAULT)\b`)
	column := regexp.MustCompile(`(?i)ADD\s+COLUMN\s+[^,;]*`)
	for _, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		sql := comment.ReplaceAllString(string(text), "")
		// The statements in a function's body do not change tables now.
		sql = regexp.MustCompile(`(?s)AS \$\$.*?\$\$`).ReplaceAllString(sql, "")
		require.Empty(t, takes.FindString(sql), "%s takes away what programs of the version before need", path)
		for _, c := range column.FindAllString(sql, -1) {
			if strings.Contains(strings.ToUpper(c), "NOT NULL") {
				require.Contains(t, strings.ToUpper(c), "DEFAULT", "%s: %s: a row that an older program writes has no value for it", path, c)
			}
		}
	}
}
