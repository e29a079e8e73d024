package relay

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// The statement that reads whether standbys have the checkpoint may get no answer.
func TestARelayThatGetsNoAnswerAboutTheStandbysIsNotReady(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig("postgres://user@127.0.0.1:1/shop")
	require.NoError(t, err)
	config.ConnConfig.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		<-t.Context().Done() // not the context of the call, which ends after pgx's time-out
		return nil, t.Context().Err()
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { closePool(pool) })
	r, err := New(Config{Pool: pool, Brokers: []string{"127.0.0.1:1"}, Service: "shop"})
	require.NoError(t, err)
	s := &stream{
		relay: r, lease: &lease{}, db: &server{Pool: pool}, copied: true,
		publishedMoved: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
	}
	s.storedLSN.Store(2)
	s.confirmedLSN.Store(1)
	s.rows.Store(1)
	ctx, cancel := context.WithCancel(t.Context())
	var storing sync.WaitGroup
	storing.Go(func() { s.storeCheckpoints(ctx, storedState{}) })
	testkit.Wait(t, "the error", func() (bool, error) {
		r.state.mu.Lock()
		defer r.state.mu.Unlock()
		_, err := r.state.unstored(0)
		return errors.Is(err, errSlowStore), nil
	})
	cancel()
	storing.Wait()
}

// A program such as pg_receivewal has the log late, so that checkpoints are held nearly all the time. A sample writes to the log. If one was taken
// each second meanwhile, an idle outbox would cost a write to the disk each second.
func TestAnIdleOutboxLooksAtStandbysWhileACheckpointIsHeld(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig("postgres://user@127.0.0.1:1/shop")
	require.NoError(t, err)
	s := &stream{copied: true, publishedMoved: make(chan struct{}, 1), hurry: make(chan struct{}, 1)}
	looks := 0
	config.ConnConfig.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		looks++
		s.rows.Add(1) // ends the wait
		return nil, errors.New("not now")
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { closePool(pool) })
	r, err := New(Config{Pool: pool, Brokers: []string{"127.0.0.1:1"}, Service: "shop"})
	require.NoError(t, err)
	s.relay, s.db = r, &server{Pool: pool}
	s.storedLSN.Store(3)
	s.confirmedLSN.Store(1)
	s.held = heldConfirm{lsn: 2, since: time.Now()}
	require.True(t, s.awaitCheckpoint(t.Context(), nil, 0))
	require.Positive(t, looks, "how far the standbys are")
}
