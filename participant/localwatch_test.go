package participant_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// TestLocalWorkOfAFormerGroupIsLogged changes the Group of local work: no member claims the entries of the former name.
func TestLocalWorkOfAFormerGroupIsLogged(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	s.write("a", Count{N: 1})
	_, err := s.pool.Exec(t.Context(), "UPDATE troupe.local_work SET created_at = created_at - interval '1 hour'")
	require.NoError(t, err)
	var logged safeBuffer
	p := s.new(func(c *participant.Config) { c.Group, c.Log = "renamed", zerolog.New(&logged) })
	participant.Handle(p, count)
	s.start(p)
	waitFor(t, "a log line", func() bool { return strings.Contains(logged.String(), `"former":"`+s.hop.String()+`"`) })
}

// TestLocalWorkThatCannotBeGivenBackIsTakenSoon locks the rows of entries while their participant gives them back: they must
// not stay in progress until Config.Stale.
func TestLocalWorkThatCannotBeGivenBackIsTakenSoon(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	var logged safeBuffer
	p := s.new(func(c *participant.Config) {
		c.Batch, c.Concurrency, c.Stale, c.Log = 10, 1, time.Hour, zerolog.New(&logged)
	})
	var away atomic.Bool
	away.Store(true)
	other, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	locked := make(chan error, 1)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if away.CompareAndSwap(true, false) {
			_, err := other.Exec(context.Background(), "SELECT FROM troupe.local_work WHERE key <> $1 FOR UPDATE", string(c.Message.Key))
			locked <- err
			return participant.Outcome{}, participant.Unavailable("the bank", errAsked)
		}
		return count(ctx, tx, c)
	}, participant.Alone())
	require.NoError(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		for _, key := range []string{"a", "b", "c"} {
			_, err := tx.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, $2, 'Count', $3)",
				s.hop.Commands(), key, marshal(Count{N: 1}))
			if err != nil {
				return err
			}
		}
		return nil
	}))
	s.start(p)
	require.NoError(t, <-locked)
	waitFor(t, "a log line", func() bool { return strings.Contains(logged.String(), "local work not given back") })
	require.NoError(t, other.Rollback(context.Background()))
	s.waitCount(3, "SELECT count(*) FROM done")
}
