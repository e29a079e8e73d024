//go:build unix

package sidecar_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// TestASecretThatIsMovedToAnotherFileIsReadThereAfterAReload: the secret itself stays the same, so that only the file's name shows the
// change. After the reload the operator deletes the former file.
func TestASecretThatIsMovedToAnotherFileIsReadThereAfterAReload(t *testing.T) {
	t.Parallel()
	environ, shop, topic := site(t)
	folder := t.TempDir()
	former, moved := filepath.Join(folder, "former"), filepath.Join(folder, "moved")
	for _, file := range []string{former, moved} {
		require.NoError(t, os.WriteFile(file, []byte("of-a-test"), 0o600))
	}
	path := configFile(t, "")
	write := func(file string) {
		text := fmt.Sprintf("admin: %s\nbrokers: %s\noutboxes:\n  - {name: shop, database-url: %q, database-password-file: %s}\n",
			anyPort, variable(environ, "KAFKA_BROKERS"), variable(environ, "DATABASE_URL"), file)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write(former)
	p := launch(t, nil, "run", "--config", path)
	p.waitReady(http.StatusOK)

	write(moved)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	testkit.Wait(t, "the reload", func() (bool, error) { return strings.Contains(p.logs(), "reload: done"), nil })
	require.NoError(t, os.Remove(former))
	_, err := shop.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE 'outbox-relay%' AND pid <> pg_backend_pid()`)
	require.NoError(t, err)
	insert(t, shop, topic, "s-1")
	testkit.Consume(t, testkit.Kafka(t), topic).WaitN(1)
	require.Contains(t, p.logs(), `"changed":["database-password-file"]`)
	require.NotContains(t, p.logs(), "of-a-test")
}
