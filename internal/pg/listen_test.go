package pg_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestAListenerWakesAlsoAfterItsConnectionWasCut(t *testing.T) {
	pool := testkit.Database(t)
	config, err := pgxpool.ParseConfig(testkit.DatabaseURL(t, pool))
	require.NoError(t, err)
	config.ConnConfig.RuntimeParams["application_name"] = "listener"

	ctx, cancel := context.WithCancel(t.Context())
	wake, lost, done := make(chan struct{}, 1), make(chan error, 100), make(chan struct{})
	l := pg.Listener{Config: config, Channel: "troupe test", OnError: func(err error) { lost <- err }}
	go func() {
		defer close(done)
		l.Run(ctx, wake)
	}()
	await := func() {
		t.Helper()
		testkit.Wait(t, "a wake-up", func() (bool, error) {
			select {
			case <-wake:
				return true, nil
			default:
				return false, nil
			}
		})
	}
	await() // connected
	_, err = pool.Exec(t.Context(), `SELECT pg_notify('troupe test', '')`)
	require.NoError(t, err)
	await()
	_, err = pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'listener'`)
	require.NoError(t, err)
	await() // connected again
	require.ErrorContains(t, <-lost, `listen on troupe test`)
	cancel()
	<-done
}

func TestAListenerSleepsThroughWhatDoesNotConcernIt(t *testing.T) {
	pool := testkit.Database(t)
	config, err := pgxpool.ParseConfig(testkit.DatabaseURL(t, pool))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	wake, heard, done := make(chan struct{}, 10), make(chan string, 10), make(chan struct{})
	l := pg.Listener{Config: config, Channel: "troupe test", Concerns: func(payload string) bool {
		heard <- payload
		return payload == "ours"
	}}
	go func() {
		defer close(done)
		l.Run(ctx, wake)
	}()
	<-wake // connected
	for _, payload := range []string{"theirs", "ours", "theirs"} {
		_, err = pool.Exec(t.Context(), "SELECT pg_notify('troupe test', $1)", payload)
		require.NoError(t, err)
		require.Equal(t, payload, <-heard)
	}
	cancel()
	<-done
	require.Len(t, wake, 1)
}
