package devstack_test

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/troupe-go/troupe/internal/devstack"
)

func TestServersElsewhereAreUsedAndLeftAlone(t *testing.T) {
	postgres := startPostgres(t, devstack.PostgresConfig{})
	kafka := startKafka(t, devstack.KafkaConfig{})
	registry, err := devstack.StartRegistry(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, registry.Close()) })
	t.Setenv("TROUPE_POSTGRES", postgres.URL(""))
	t.Setenv("TROUPE_KAFKA", " "+kafka.Addrs()[0]+" ,")
	t.Setenv("TROUPE_REGISTRY", registry.URL())
	t.Setenv("DATABASE_URL", "postgres://production.invalid/")

	p, err := devstack.OpenPostgres(t.Context(), devstack.PostgresConfig{})
	require.NoError(t, err)
	require.Equal(t, postgres.URL("x"), p.URL("x"))
	require.Equal(t, p.URL("x"), p.SocketURL("x"))
	require.Error(t, p.Kill())
	require.NoError(t, p.Close())
	require.Equal(t, "1", ask(t, postgres.URL(""), "SELECT '1'"))

	k, err := devstack.OpenKafka(t.Context(), devstack.KafkaConfig{})
	require.NoError(t, err)
	require.Equal(t, kafka.Addrs(), k.Addrs())
	require.NoError(t, k.Close())
	require.NoError(t, kafkaClient(t, kafka).Ping(t.Context()))

	r, err := devstack.OpenRegistry(t.Context())
	require.NoError(t, err)
	require.Equal(t, registry.URL(), r.URL())
	require.NoError(t, r.Close())
	requireAnswers(t, registry)
}

func TestServersElsewhereThatCannotBeReachedAreNamed(t *testing.T) {
	for name, value := range map[string]string{
		"TROUPE_POSTGRES": "host=localhost",
		"TROUPE_KAFKA":    "127.0.0.1:1",
		"TROUPE_REGISTRY": "http://127.0.0.1:1",
	} {
		t.Setenv(name, value)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := devstack.OpenPostgres(ctx, devstack.PostgresConfig{})
	require.ErrorContains(t, err, "TROUPE_POSTGRES")
	_, err = devstack.OpenRegistry(ctx)
	require.ErrorContains(t, err, "TROUPE_REGISTRY")
	cancel()
	_, err = devstack.OpenKafka(ctx, devstack.KafkaConfig{})
	require.ErrorContains(t, err, "TROUPE_KAFKA")
}

func TestTemporaryFoldersAreRemovedAtClose(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "t-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(base)) })
	require.NoError(t, os.Chmod(base, 0o711))
	t.Setenv("TMPDIR", base)
	p, err := devstack.StartPostgres(t.Context(), devstack.PostgresConfig{})
	require.NoError(t, err)
	k, err := devstack.StartKafka(t.Context(), devstack.KafkaConfig{})
	require.NoError(t, err)
	entries, err := os.ReadDir(base)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	require.NoError(t, p.Close())
	require.NoError(t, k.Close())
	entries, err = os.ReadDir(base)
	require.NoError(t, err)
	require.Empty(t, entries)
	require.NoError(t, p.Close(), "again")
}

func requireAnswers(t *testing.T, r *devstack.Registry) {
	t.Helper()
	cl, err := sr.NewClient(sr.URLs(r.URL()))
	require.NoError(t, err)
	_, err = cl.Subjects(t.Context())
	require.NoError(t, err)
}
