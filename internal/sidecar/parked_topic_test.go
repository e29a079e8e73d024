package sidecar_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Rows of two topics are parked under one id. An operator shows and discards one of them, by its topic.
func TestARowOfOneTopicIsDiscardedByItsID(t *testing.T) {
	t.Parallel()
	environ, conn, _ := site(t)
	for _, topic := range []string{"a.b.commands", "a.b.dlq"} {
		_, err := conn.Exec(t.Context(), `WITH new AS (INSERT INTO troupe.outbox (id, topic, key, type, payload) VALUES ($1, $2, 'k', 'T', '{}') RETURNING position)
			INSERT INTO troupe.outbox_failures (position, id, topic, status, attempts, max_attempts, last_error)
			SELECT position, $1, $2, 'parked', 1, 1, 'denied' FROM new`, someID, topic)
		require.NoError(t, err)
	}
	for _, topic := range []string{"a.b.commands", "a.b.dlq"} {
		r := run(t, environ, "parked", "show", someID, "--topic", topic)
		require.Equal(t, 0, r.code, r.stderr)
		require.Contains(t, r.stdout, topic)
	}
	discard := []string{"parked", "discard", someID, "--actor", "ann", "--reason", "ticket 4711"}
	for _, more := range [][]string{nil, {"--dry-run"}} {
		r := run(t, environ, append(discard, more...)...)
		require.Equal(t, 1, r.code, more)
		require.Contains(t, r.stderr, "a.b.commands, a.b.dlq", more)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no id":              {[]string{"--topic", "a.b.dlq"}, "--all"},
		"ids and all":        {[]string{someID, "--topic", "a.b.dlq", "--all"}, "one or the other"},
		"all without topic":  {[]string{"--all"}, "--all without --topic"},
		"no id of a dry run": {[]string{"--topic", "a.b.dlq", "--dry-run"}, "--all"},
	} {
		r := run(t, environ, append([]string{"parked", "discard", "--actor", "ann", "--reason", "ticket 4711"}, c.args...)...)
		require.Equal(t, 2, r.code, name)
		require.Contains(t, r.stderr, c.want, name)
	}
	discard = append(discard, "--topic", "a.b.dlq")
	r := run(t, environ, append(discard, "--dry-run")...)
	require.Equal(t, 0, r.code, r.stderr)
	require.Contains(t, r.stdout, "1 rows: discard would be")
	require.Contains(t, r.stdout, "a.b.dlq")
	r = run(t, environ, discard...)
	require.Equal(t, 0, r.code, r.stderr)
	require.Contains(t, r.stdout, "a.b.dlq: discarded")
	require.Equal(t, 1, count(t, conn, "SELECT count(*) FROM troupe.outbox WHERE topic = 'a.b.commands'"))
	require.Equal(t, 1, count(t, conn, "SELECT count(*) FROM troupe.outbox"))

	r = run(t, environ, "parked", "discard", "--topic", "a.b.commands", "--all", "--actor", "ann", "--reason", "ticket 4711")
	require.Equal(t, 0, r.code, r.stderr)
	require.Equal(t, 0, count(t, conn, "SELECT count(*) FROM troupe.outbox"))
}
