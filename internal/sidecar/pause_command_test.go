//go:build unix

package sidecar_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRelaysArePausedAndResumedByCommand(t *testing.T) {
	t.Parallel()
	environ, _, _ := site(t)
	r := run(t, environ, "pause")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.stderr, "want a reason")
	p := start(t, environ)
	p.waitReady(http.StatusOK)
	r = run(t, environ, "pause", "--reason", "ticket 7", "--dry-run")
	require.Equal(t, 0, r.code, r.stderr)
	require.Contains(t, r.stdout, "nothing was done")
	r = run(t, environ, "pause", "--actor", "ann", "--reason", "ticket 7")
	require.Equal(t, 0, r.code, r.stderr)
	p.waitReady(http.StatusServiceUnavailable)
	_, text := p.ask("GET", "/readyz", "", "")
	require.Contains(t, text, "by ann (ticket 7): outbox-relay resume ends it")
	require.Contains(t, run(t, environ, "status").stdout, "by ann: ticket 7")
	r = run(t, environ, "pause", "--reason", "again")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "paused already")
	r = run(t, environ, "resume", "--output", "json")
	require.Equal(t, 0, r.code, r.stderr)
	p.waitReady(http.StatusOK)
	require.Equal(t, 0, p.terminate())
}

func TestStatusTellsOfAllShardsAndParkedRowsOfATopicAreRetried(t *testing.T) {
	t.Parallel()
	environ, conn, topic := site(t)
	park(t, conn, topic, 3)
	_, err := conn.Exec(t.Context(), `INSERT INTO troupe.relay_leases (shard, holder, term, expires_at, shards, source, source_why) VALUES
		(0, 'r-1', 3, now() + interval '1 hour', 2, 'poll', 'by configuration'), (1, 'r-2', 4, now() + interval '1 hour', 1, NULL, NULL)`)
	require.NoError(t, err)
	r := run(t, environ, "status")
	require.Equal(t, 0, r.code, r.stderr)
	for _, line := range []string{"shard 0       r-1, term 3", "shard 1       r-2, term 4", "source        poll: by configuration"} {
		require.Contains(t, r.stdout, line)
	}
	var s struct{ Leases []struct{ Shard int } }
	require.NoError(t, json.Unmarshal([]byte(run(t, environ, "status", "--output", "json").stdout), &s))
	require.Len(t, s.Leases, 2)

	r = run(t, environ, "parked", "retry", "--topic", topic, "--dry-run")
	require.Contains(t, r.stdout, "3 rows: retry would be")
	require.Equal(t, 3, count(t, conn, "SELECT count(*) FROM troupe.outbox_failures WHERE status = 'parked'"))
	r = run(t, environ, "parked", "retry", "--topic", topic, someID, "--actor", "ann")
	require.Equal(t, 1, r.code, "no row of the topic has the id")
	require.Equal(t, 3, count(t, conn, "SELECT count(*) FROM troupe.outbox_failures WHERE status = 'parked'"))
	r = run(t, environ, "parked", "retry", "--topic", topic, "--output", "json")
	require.Equal(t, 0, r.code, r.stderr)
	require.JSONEq(t, `{"topic": `+quoted(topic)+`, "done": 3}`, r.stdout)
	require.Equal(t, 3, count(t, conn, "SELECT count(*) FROM troupe.outbox_failures WHERE status = 'retrying'"))
}

func quoted(text string) string {
	b, _ := json.Marshal(text) // of a text
	return string(b)
}
