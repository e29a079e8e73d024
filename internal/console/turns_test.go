package console

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// waiting returns the number of a client's requests that are not answered yet.
func (t *turns) waiting(client string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q := t.all[client]; q != nil {
		return q.requests
	}
	return 0
}

// A viewer who sends many requests, such as by a program, must not stop the console for the people who repair.
func TestManyRequestsOfAUserLeaveConnectionsToOthers(t *testing.T) {
	t.Parallel()
	d := newDesk(t, withUsers, twice(t), func(c *Config) {
		config := c.Databases[0].Pool.Config()
		config.MaxConns = 2 * mostAtOnce
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		c.Databases[0].Pool = pool
	})
	id := d.letters()[0]
	tx, err := d.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE troupe.dead_letters") // so that each request for the list waits
	require.NoError(t, err)

	operator, admin := d.as(tokenOf("operator")), d.as(tokenOf("admin"))
	const many = 10
	codes := make(chan int, 2*many)
	var all sync.WaitGroup
	for range many {
		all.Go(func() { codes <- operator.get(at("/dead-letters/list", "db", "order")).Code })
		all.Go(func() { codes <- operator.get(at("/dead-letter/payload", "db", "order", "id", id)).Code })
	}
	testkit.Wait(t, "the requests to wait", func() (bool, error) { return d.c.turns.waiting("user operator") == 2*many, nil })
	require.Equal(t, http.StatusOK, admin.get(at("/expectations", "db", "order")).Code, "another user, while connections are left")
	require.NoError(t, tx.Rollback(t.Context()))
	all.Wait()
	for range 2 * many {
		require.Equal(t, http.StatusOK, <-codes, "they have only waited")
	}
	require.Empty(t, d.c.turns.all)

	var ends []func()
	for range mostAtOnce {
		end, err := d.c.turns.take(t.Context(), "user operator")
		require.NoError(t, err)
		ends = append(ends, end)
	}
	d.c.limit = 1 // a moment
	require.Equal(t, http.StatusTooManyRequests, operator.get("/expectations").Code)
	d.c.limit = testLimit
	require.Equal(t, http.StatusOK, admin.get("/expectations").Code, "another user")
	for _, end := range ends {
		end()
	}
	require.Equal(t, http.StatusOK, operator.get("/expectations").Code)
}

// TestAnActionWaitsForOtherRequestsOfItsClient: the users of a shared token, and readers without a token, are counted by their address.
func TestAnActionWaitsForOtherRequestsOfItsClient(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	id := d.letters()[0]
	client := clientOf(httptest.NewRequest(http.MethodGet, "/", nil), user{})
	var ends []func()
	for range mostAtOnce {
		end, err := d.c.turns.take(t.Context(), client)
		require.NoError(t, err)
		ends = append(ends, end)
	}
	answered := make(chan int, 1)
	go func() {
		answered <- d.post("/dead-letter", form("db", "order", "id", id, "do", "discard", "actor", "ann", "reason", "ticket 1")).Code
	}()
	testkit.Wait(t, "the action to wait", func() (bool, error) { return d.c.turns.waiting(client) == mostAtOnce+1, nil })
	require.Equal(t, 0, d.records())
	ends[0]()
	require.Equal(t, http.StatusOK, <-answered)
	require.Equal(t, 1, d.records())
	ends[1]()
}
