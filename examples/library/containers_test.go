package main

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/testkit/containers"
)

// The whole service runs on Postgres, Apache Kafka, a schema registry and a relay in containers.
func TestAPickupOnServersInContainers(t *testing.T) {
	testcontainers.SkipIfProviderIsNotHealthy(t) // where there is no Docker
	servers := containers.New(t, containers.Config{Databases: []string{"library"}, Registry: true})
	pool, err := pgxpool.New(t.Context(), servers.DatabaseURL("library"))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), tables+stock+"; INSERT INTO lockers VALUES ('north', 1)")
	require.NoError(t, err)
	codec, err := newCodec(t.Context(), servers.RegistryURL())
	require.NoError(t, err)
	s, err := newService(t.Context(), participant.Config{Pool: pool, Brokers: servers.Brokers(), Log: testkit.Logger(t)}, codec)
	require.NoError(t, err)
	ctx, leave := context.WithTimeout(t.Context(), 5*time.Minute)
	served := make(chan error, 1)
	go func() { served <- s.run(ctx) }()
	defer func() {
		leave()
		require.NoError(t, <-served)
	}()

	// The second loan finds no free locker in the branch, and the third one no copy of its book.
	for _, c := range []struct {
		loan, isbn string
		status     saga.Status
		reason     string
	}{
		{"l-1", "978-1", saga.Completed, ""},
		{"l-2", "978-1", saga.Compensated, "no free locker in north"},
		{"l-3", "978-2", saga.Compensated, "no free copy of 978-2"},
	} {
		require.NoError(t, s.start(ctx, c.loan, "ann", c.isbn, "north"))
		ended, err := s.sagas.Wait(ctx, "pickup", c.loan)
		require.NoError(t, err)
		require.Equal(t, c.status, ended.Status, c.loan)
		require.Equal(t, c.reason, ended.Reason, c.loan)
	}
	var free int
	require.NoError(t, pool.QueryRow(ctx, "SELECT free FROM copies WHERE isbn = '978-1'").Scan(&free))
	require.Equal(t, 1, free, "the book of the second loan is taken back")
}
