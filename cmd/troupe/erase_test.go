package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/testkit"
)

// TestAnOwnerErasesByCommand: a viewer sees the preview, and the output has no key.
func TestAnOwnerErasesByCommand(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	const letter = `
INSERT INTO troupe.dead_letters (consumer_group, handler, error_class, error, attempts, topic, topic_id, partition, "offset", key, headers, payload,
  message_id, message_type, correlation_id, status, first_failed_at, last_failed_at)
VALUES ('g', 'h', 'permanent', 'Ann is unknown', 1, 't', gen_random_uuid(), 0, 0, convert_to($1, 'UTF8'), '', 'Ann', 'm', 'T', 'c', $2, now(), now())`
	for key, status := range map[string]string{"c-1": "discarded", "c-2": "open"} {
		_, err := pool.Exec(t.Context(), letter, key, status)
		require.NoError(t, err)
	}
	as := func(url string, args ...string) outcome {
		return finish(t, command(t, []string{"DATABASE_URL=" + url}, append([]string{"erase", "--actor", "ann"}, args...)...))
	}
	owner, viewer := testkit.DatabaseURL(t, pool), grantstest.New(t, pool, grants.Viewer).URL()

	o := as(viewer, "c-1", "--dry-run")
	require.Equal(t, exitDone, o.status, o.stderr)
	require.Regexp(t, `^Key 1 of 1, SHA-256 [0-9a-f]{64}\nTABLE +ROWS +EFFECT\ndead_letters +1 +blanked\nNothing was erased\.\n$`, o.stdout)
	o = as(viewer, "c-1", "--reason", "ticket 4711", "--yes")
	require.Equal(t, exitFailed, o.status)
	require.Contains(t, o.stderr, "does not own Troupe's tables")

	o = as(owner, "c-1", "c-2", "--reason", "ticket 4711", "--yes")
	require.Equal(t, exitFailed, o.status)
	require.Contains(t, o.stdout, "in the way: open dead letters: troupe dlq redrive or troupe dlq discard")
	require.Contains(t, o.stderr, "1 of 2 keys: work of the key is in the way")
	o = as(owner, "c-1", "--reason", "asked by c-1", "--yes")
	require.Equal(t, exitUsage, o.status, o.stderr)
	require.Equal(t, exitUsage, as(owner, "c-1", "--yes").status)

	o = as(owner, "c-1", "--reason", "ticket 4711", "--yes", "--output", "json")
	require.Equal(t, exitDone, o.status, o.stderr)
	var done struct {
		Done bool
		Keys []struct {
			Digest  string
			Changes []struct {
				Table string
				Rows  int
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &done))
	require.True(t, done.Done)
	require.Equal(t, "dead_letters", done.Keys[0].Changes[0].Table)
	require.NotContains(t, o.stdout, "c-1")
	require.Contains(t, as(viewer, "c-1", "--dry-run").stdout, "erased before at 20")

	o = finish(t, command(t, []string{"DATABASE_URL=" + viewer}, "actions"))
	require.Equal(t, exitDone, o.status, o.stderr)
	require.Regexp(t, `ann +erase +1 +erasure +a key +`+done.Keys[0].Digest[:50]+`.* +ticket 4711\n`, o.stdout)
	var id string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT id FROM troupe.dead_letters WHERE key IS NULL").Scan(&id))
	o = finish(t, command(t, []string{"DATABASE_URL=" + viewer}, "dlq", "show", id))
	require.Equal(t, exitDone, o.status, o.stderr)
	require.NotContains(t, o.stdout, "Ann")
	var left int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.dead_letters WHERE payload = 'Ann'").Scan(&left))
	require.Equal(t, 1, left)
}
