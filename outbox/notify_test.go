package outbox_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/testkit"
)

// listen is how many notifications came until one on the channel "end".
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
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		n, err := conn.Conn().WaitForNotification(ctx)
		require.NoError(t, err)
		if n.Channel == "test_end" {
			return heard
		}
		require.Equal(t, outbox.Channel, n.Channel)
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

// What a commit does not say, since one has notified just now, the next that notifies says.
func TestANotificationNamesWhatWasWrittenToSinceTheLast(t *testing.T) {
	t.Parallel()
	box, now := newOutbox(t, outbox.Config{NotifyEvery: time.Minute}), time.Now()
	require.Equal(t, []string{"a", "b"}, box.Due(now, "a", "b", "a"))
	require.Nil(t, box.Due(now.Add(time.Second), "c"))
	require.Nil(t, box.Due(now.Add(2*time.Second), "a", "c"))
	require.Equal(t, []string{"c", "a", "d"}, box.Due(now.Add(time.Minute), "d"))
	require.Nil(t, box.Due(now.Add(time.Hour)), "nothing was written")

	many := strings.Split("1 2 3 4 5 6 7 8 9", " ")
	require.Equal(t, []string{""}, box.Due(now.Add(time.Hour), many...), "of so many it says that there is something")
	require.Equal(t, []string{"9"}, box.Due(now.Add(2*time.Hour), "9"))

	require.Nil(t, newOutbox(t, outbox.Config{NotifyEvery: -1}).Due(now, "a"))
}

// TestATopicTooLongForANotificationIsNotNamed: Postgres would abort the transaction.
func TestATopicTooLongForANotificationIsNotNamed(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	require.Equal(t, 1, listen(t, pool, func() {
		write(t, pool, newOutbox(t, outbox.Config{}), outbox.Entry{Topic: strings.Repeat("t", 9000), Type: "T"})
	}))
}
