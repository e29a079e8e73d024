package pg_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/testkit"
)

func TestASessionOfOursDoesNotDependOnTheSettingsOfItsRole(t *testing.T) {
	t.Parallel()
	users, err := pgxpool.New(t.Context(), testkit.EmptyDatabase(t))
	require.NoError(t, err)
	defer users.Close()
	for name, value := range map[string]string{
		"statement_timeout": "'7h'", "lock_timeout": "'7h'", "idle_session_timeout": "'7h'", "idle_in_transaction_session_timeout": "'7h'",
		"default_transaction_isolation": "serializable", "synchronous_commit": "remote_apply", "client_encoding": "LATIN1",
		"search_path": "theirs, pg_catalog",
	} {
		_, err := users.Exec(t.Context(), "ALTER DATABASE "+pgx.Identifier{users.Config().ConnConfig.Database}.Sanitize()+" SET "+name+" = "+value)
		require.NoError(t, err)
	}
	users.Reset()
	ours, err := pg.SessionPool(users)
	require.NoError(t, err)
	defer ours.Close()
	for name, want := range map[string]string{
		"statement_timeout": "0", "lock_timeout": "0", "idle_session_timeout": "0", "idle_in_transaction_session_timeout": "0",
		"default_transaction_isolation": "read committed", "synchronous_commit": "local", "client_encoding": "UTF8",
		"search_path": "pg_catalog, pg_temp",
	} {
		var got string
		require.NoError(t, ours.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&got))
		require.Equal(t, want, got, name)
	}
	// Asynchronous commits were configured, and wait for no standby.
	_, err = users.Exec(t.Context(), "ALTER DATABASE "+pgx.Identifier{users.Config().ConnConfig.Database}.Sanitize()+" SET synchronous_commit = off")
	require.NoError(t, err)
	ours.Reset()
	var got string
	require.NoError(t, ours.QueryRow(t.Context(), "SELECT current_setting('synchronous_commit')").Scan(&got))
	require.Equal(t, "off", got)
}
