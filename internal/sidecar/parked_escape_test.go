package sidecar_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The role of a person who pauses may write any name into the record with SQL of its own.
func TestAPauseIsPrintedWithoutControlCharacters(t *testing.T) {
	t.Parallel()
	environ, conn, _ := site(t)
	require.Equal(t, 0, run(t, environ, "pause", "--actor", "ann", "--reason", "r").code)
	for _, forge := range []string{
		`UPDATE troupe.relay_leases SET holder = E'h\x1b[2J\nstatus forged', paused_by = E'ann\x1b[2J\nstatus forged', paused_why = E'\u009b2J\u202e'`,
		`INSERT INTO troupe.relay_pauses (actor, action, reason, shard) VALUES (E'ann\x1b[2J\nstatus forged', 'pause', E'\u009b2J\u202e', 0)`,
	} {
		_, err := conn.Exec(t.Context(), forge)
		require.NoError(t, err)
	}
	for _, args := range [][]string{{"status"}, {"pause", "--actor", "ann", "--reason", "r", "--dry-run"}, {"resume", "--actor", "ann", "--dry-run"}} {
		r := run(t, environ, args...)
		require.Equal(t, 0, r.code, r.stderr)
		require.Contains(t, r.stdout, "by ann·[2J·status forged", "%q", args)
		for _, control := range []string{"\x1b", "\u009b", "\u202e", "\nstatus forged"} {
			require.NotContains(t, r.stdout+r.stderr, control, "%q", args)
		}
	}
}

// A terminal would obey escape sequences in a message, and a line break would forge a line.
func TestParkedRowsArePrintedWithoutControlCharacters(t *testing.T) {
	t.Parallel()
	environ, conn, topic := site(t)
	id := park(t, conn, topic+"\x1b[2J", 1)[0]
	_, err := conn.Exec(t.Context(), `UPDATE troupe.outbox SET payload = E'{"a": "\x1b]0;owned\x07"}', type = E'T\x1b[31m\nstatus forged', headers = E'{"x": "\u202e"}'`)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `UPDATE troupe.outbox_failures SET last_error = E'refused \x1b[1A\u009b2J'`)
	require.NoError(t, err)
	for _, args := range [][]string{{"parked", "list"}, {"parked", "show", id}, {"parked", "retry", "--topic", topic + "\x1b[2J", "--dry-run", "--actor", "ann"}, {"parked", "retry", id, "--actor", "ann"}} {
		r := run(t, environ, args...)
		require.Equal(t, 0, r.code, r.stderr)
		require.Contains(t, r.stdout, topic+"·[2J", "%q", args)
		for _, control := range []string{"\x1b", "\x07", "\u009b", "\u202e"} {
			require.NotContains(t, r.stdout+r.stderr, control, "%q", args)
		}
		require.NotContains(t, r.stdout, "\nstatus forged")
	}
}
