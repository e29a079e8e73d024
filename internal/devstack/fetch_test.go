package devstack_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/devstack"
)

// The binaries of a machine without Postgres. The transfer happens once for a user; later runs use the cache.
func TestPostgresRunsFromFetchedBinaries(t *testing.T) {
	t.Parallel()
	bin, err := devstack.FetchPostgres(t.Context(), devstack.Postgres17)
	if err != nil && !online(t) {
		t.Skip("not cached, and Maven Central cannot be reached: ", err)
	}
	require.NoError(t, err)
	p := startPostgres(t, devstack.PostgresConfig{Binaries: bin})
	exec(t, p.URL(""), "SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
	require.Regexp(t, `^17\.`, ask(t, p.URL(""), "SHOW server_version"))
}

func online(t *testing.T) bool {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodHead, "https://repo1.maven.org/maven2/", nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	require.NoError(t, answer.Body.Close())
	return true
}
