package main

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/testkit"
)

// The commands log in with the settings of the relay, from variables: also a console, whose database gets a new password while
// it runs.
func TestCommandsLogInWithThePasswordOfTheMoment(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	role := grantstest.New(t, pool, grants.Viewer)
	with, err := url.Parse(role.URL())
	require.NoError(t, err)
	without := *with
	without.User = url.User(role.Name)
	file := filepath.Join(t.TempDir(), "secret")
	write := func(text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(file+".new", []byte(text+"\n"), 0o600))
		require.NoError(t, os.Rename(file+".new", file))
	}
	password, _ := with.User.Password()
	write(password)
	printed := "TROUPE_DATABASE_PASSWORD_COMMAND=sh -c 'test $PGUSER = " + role.Name + " && cat " + file + "'"
	for _, c := range []struct {
		env    []string
		args   []string
		status int
		want   string
	}{
		{[]string{"DATABASE_URL=" + without.String(), "TROUPE_DATABASE_PASSWORD_FILE=" + file}, []string{"dlq", "list"}, 0, "No dead letters."},
		{[]string{"DATABASE_URL=" + without.String(), printed}, []string{"dlq", "list"}, 0, "No dead letters."},
		{[]string{"DATABASE_URL=" + without.String(), printed}, []string{"saga", "list"}, 0, ""},
		{[]string{"DATABASE_URL=" + without.String(), printed}, []string{"trace", "o-1"}, 0, "o-1"},
		{[]string{"DATABASE_URL=" + with.String(), "TROUPE_DATABASE_PASSWORD_COMMAND=false"}, []string{"dlq", "list"}, 0, "No dead letters."}, // the URL has one
		{[]string{"DATABASE_URL=" + without.String(), "TROUPE_DATABASE_PASSWORD_COMMAND=false"}, []string{"dlq", "list"}, 1,
			"database-password-command (from TROUPE_DATABASE_PASSWORD_COMMAND): command false: exit status 1"},
	} {
		o := finish(t, command(t, c.env, c.args...))
		require.Equal(t, c.status, o.status, "%v: %s%s", c.args, o.stdout, o.stderr)
		require.Contains(t, o.stdout+o.stderr, c.want)
	}

	write(with.String())
	config := filepath.Join(t.TempDir(), "console.yaml")
	require.NoError(t, os.WriteFile(config, []byte("databases: {order: {file: "+file+"}}\n"), 0o600))
	c := serve(t, nil, "console", "--listen", "127.0.0.1:0", "--config", config)
	shows := func() {
		t.Helper()
		testkit.Wait(t, "the page of dead letters", func() (bool, error) {
			status, text := fetch(t, c.address+"dead-letters", http.Header{"Accept": {"application/json"}})
			if status != http.StatusOK || !strings.Contains(text, `"causes": []`) {
				return false, fmt.Errorf("status %d: %s", status, text)
			}
			return true, nil
		})
	}
	shows()
	_, err = pool.Exec(t.Context(), "ALTER ROLE "+role.Name+" PASSWORD 'another'")
	require.NoError(t, err)
	with.User = url.UserPassword(role.Name, "another")
	write(with.String())
	_, err = pool.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", role.Name)
	require.NoError(t, err)
	shows()
	status, _ := c.end()
	require.Zero(t, status)
}

func TestTraceLogsInToKafka(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "order.payment.commands"), kfake.EnableSASL(),
		kfake.Superuser("SCRAM-SHA-512", "viewer", "s3cr3t"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	env := []string{"DATABASE_URL=", "KAFKA_BROKERS=" + strings.Join(cluster.ListenAddrs(), ","), "TROUPE_FLOW=order", "TROUPE_KAFKA_SASL=scram-sha-512", "TROUPE_KAFKA_USER=viewer"}
	o := finish(t, command(t, append(env, "TROUPE_KAFKA_PASSWORD_COMMAND=echo s3cr3t"), "trace", "o-1"))
	require.Equal(t, 0, o.status, o.stderr)
	o = finish(t, command(t, append(env, "TROUPE_KAFKA_PASSWORD_COMMAND=sh -c 'echo no identity >&2; exit 7'"), "trace", "o-1", "--timeout", "2s"))
	require.Equal(t, 1, o.status, o.stdout)
	require.Contains(t, o.stdout+o.stderr, "kafka-password-command (from TROUPE_KAFKA_PASSWORD_COMMAND): command sh: exit status 7; its standard error: no identity")
}
