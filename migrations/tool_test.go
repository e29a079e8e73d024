package migrations_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/testkit"
)

// statementsOf splits SQL at the semicolons outside of quoted text, functions' bodies and comments.
func statementsOf(sql string) (all []string) {
	start, end := 0, ""
	for i := 0; i < len(sql); i++ {
		rest := sql[i:]
		switch {
		case end != "":
			if strings.HasPrefix(rest, end) {
				i, end = i+len(end)-1, ""
			}
		case strings.HasPrefix(rest, "--"):
			end = "\n"
		case strings.HasPrefix(rest, "$$"):
			i, end = i+1, "$$"
		case rest[0] == '\'':
			end = "'"
		case rest[0] == ';':
			all, start = append(all, sql[start:i+1]), i+1
		}
	}
	return all
}

// runOn runs each statement in a transaction of its own and continues after an error, as psql does by default. It returns the number of
// errors.
func runOn(t *testing.T, url, sql string) (errors int) {
	t.Helper()
	conn := connect(t, url)
	for _, statement := range statementsOf(sql) {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			errors++
		}
	}
	return errors
}

func file(t *testing.T, version int64) string {
	t.Helper()
	found, err := filepath.Glob(fmt.Sprintf("sql/%05d_*.sql", version))
	require.NoError(t, err)
	require.Len(t, found, 1)
	text, err := os.ReadFile(found[0])
	require.NoError(t, err)
	return string(text)
}

func printed(t *testing.T, after int64) string {
	t.Helper()
	sql, err := migrations.SQL(after)
	require.NoError(t, err)
	return sql
}

func latest(t *testing.T) int64 {
	t.Helper()
	files, err := filepath.Glob("sql/*.sql")
	require.NoError(t, err)
	return int64(len(files))
}

// TestPrintedStatementsThatRunTwiceChangeNothing also checks that the history lists each version once.
func TestPrintedStatementsThatRunTwiceChangeNothing(t *testing.T) {
	t.Parallel()
	url := testkit.EmptyDatabase(t)
	sql := printed(t, 0)
	require.Zero(t, runOn(t, url, sql))
	content := func() (text string) {
		require.NoError(t, connect(t, url).QueryRow(t.Context(), `
			SELECT concat_ws(' ', (SELECT count(*) FROM troupe.migrations), (SELECT count(*) FROM troupe.retention), (SELECT count(*) FROM troupe.watch_days),
			  (SELECT count(*) FROM troupe.outbox_partitions), (SELECT count(*) FROM pg_class WHERE relnamespace = 'troupe'::regnamespace),
			  (SELECT count(*) FROM pg_constraint WHERE connamespace = 'troupe'::regnamespace), (SELECT count(*) FROM pg_trigger),
			  (SELECT count(*) FROM pg_proc WHERE pronamespace = 'troupe'::regnamespace))`).Scan(&text))
		return text
	}
	before := content()
	require.NotZero(t, runOn(t, url, sql))
	require.Equal(t, before, content())
	s, err := migrations.Get(t.Context(), url)
	require.NoError(t, err)
	require.Equal(t, migrations.Status{Current: latest(t), Latest: latest(t)}, s)
}

// TestStatementsThatFailedRecordNoVersion runs the statements of the last versions in an empty database.
func TestStatementsThatFailedRecordNoVersion(t *testing.T) {
	t.Parallel()
	url := testkit.EmptyDatabase(t)
	require.NotZero(t, runOn(t, url, printed(t, 11)))
	_, err := migrations.Get(t.Context(), url)
	require.ErrorIs(t, err, migrations.ErrPartial)
	require.ErrorIs(t, migrations.Up(t.Context(), url), migrations.ErrPartial)
}

// TestToolsTakeTurns: one tool runs the files, another the printed statements, and then Up applies the other versions.
func TestToolsTakeTurns(t *testing.T) {
	t.Parallel()
	last := latest(t)
	upTo := func(sql string, version int64) string {
		before, _, found := strings.Cut(sql, fmt.Sprintf("\n-- Version %d.\n", version+1))
		require.True(t, found)
		return before
	}
	var files string
	for version := int64(1); version <= last-3; version++ {
		files += file(t, version)
	}
	for name, c := range map[string]struct {
		sql        string
		current    int64
		unrecorded bool
	}{
		"the statements, then a file":              {upTo(printed(t, 0), last-1) + file(t, last), last, true},
		"the statements, then a file, then Up":     {upTo(printed(t, 0), last-2) + file(t, last-1), last - 1, true},
		"the files, then some statements, then Up": {files + upTo(printed(t, last-3), last-2), last - 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := testkit.EmptyDatabase(t)
			require.Zero(t, runOn(t, url, c.sql))
			s, err := migrations.Get(t.Context(), url)
			require.NoError(t, err)
			require.Equal(t, migrations.Status{Current: c.current, Latest: last, Unrecorded: c.unrecorded}, s)
			for range 2 {
				require.NoError(t, migrations.Up(t.Context(), url))
				s, err = migrations.Get(t.Context(), url)
				require.NoError(t, err)
				require.Equal(t, migrations.Status{Current: last, Latest: last}, s)
			}
		})
	}
}
