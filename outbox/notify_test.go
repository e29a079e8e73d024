package outbox_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/testkit"
)

// listen counts the notifications until one on the channel "end".
func listen(t *testing.T, pool *pgxpool.Pool, during func()) (heard int) {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "LISTEN troupe_outbox; LISTEN test_end")
	require.NoError(t, err)
	during()
	_, err = pool.Exec(t.Context(), "SELECT pg_notify('test_end', '')")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for {
		n, err := conn.Conn().WaitForNotification(ctx)
		require.NoError(t, err)
		if n.Channel == "test_end" {
			return heard
		}
		require.Equal(t, outboxrow.Channel, n.Channel)
		heard++
	}
}

func TestNotificationsComeWithTheCommitAndNotTooOften(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	entry := outbox.Entry{Topic: "t", Type: "T"}
	tenWrites := func(every time.Duration) func() {
		return func() {
			box := newOutbox(t, outbox.Config{NotifyEvery: every})
			for range 10 {
				write(t, pool, box, entry)
			}
		}
	}
	require.Equal(t, 10, listen(t, pool, tenWrites(time.Nanosecond)))
	require.Equal(t, 1, listen(t, pool, tenWrites(time.Hour)))
	require.Equal(t, 0, listen(t, pool, tenWrites(-1)))
	require.Equal(t, 0, listen(t, pool, func() {
		tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{})
		require.NoError(t, err)
		require.NoError(t, newOutbox(t, outbox.Config{}).Write(t.Context(), tx, entry))
		require.NoError(t, tx.Rollback(t.Context()))
	}))
}

func TestANotificationNamesItsTopicsEachByItsOwnTime(t *testing.T) {
	t.Parallel()
	box, now := newOutbox(t, outbox.Config{NotifyEvery: time.Minute, NotifyTopics: true}), time.Now()
	require.Equal(t, []string{"a"}, box.Due(now, "a", "a"))
	require.Equal(t, []string{"b"}, box.Due(now, "a", "b"), "in the same transaction, or another")
	require.Nil(t, box.Due(now.Add(time.Second), "a", "b"))
	require.Equal(t, []string{"a", "c"}, box.Due(now.Add(time.Minute), "a", "c"))

	many := strings.Split("1 2 3 4 5 6 7 8 9", " ")
	require.Equal(t, []string{""}, box.Due(now.Add(time.Hour), many...), "of so many it says that there is something")
	for _, topic := range []string{"x\x00", "\xff", "ü", "a b", strings.Repeat("t", 250)} {
		box := newOutbox(t, outbox.Config{NotifyTopics: true})
		require.Equal(t, []string{""}, box.Due(now, topic), "%q", topic)
	}

	box = newOutbox(t, outbox.Config{NotifyEvery: time.Minute})
	require.Equal(t, []string{""}, box.Due(now, "a", "b"))
	require.Nil(t, box.Due(now, "c"))
	require.Nil(t, newOutbox(t, outbox.Config{NotifyEvery: -1, NotifyTopics: true}).Due(now, "a"))
}

// TestATopicTooLongForANotificationIsNotNamed: with the name, Postgres would abort the transaction.
func TestATopicTooLongForANotificationIsNotNamed(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	require.Equal(t, 1, listen(t, pool, func() {
		write(t, pool, newOutbox(t, outbox.Config{NotifyTopics: true}), outbox.Entry{Topic: strings.Repeat("t", 9000), Type: "T"})
	}))
}
