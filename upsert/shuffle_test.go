package upsert_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/upsert"
)

// shuffled is every message one to three times, in any order.
func shuffled[M any](r *rand.Rand, messages []M) []M {
	var all []M
	for _, m := range messages {
		for range 1 + r.IntN(3) {
			all = append(all, m)
		}
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func source(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// A message of the shuffles: about one of three keys. Versions and operations repeat, with the same values and others.
type message struct{ key, n, value int }

func messages(r *rand.Rand) (all []message) {
	for range 120 {
		all = append(all, message{r.IntN(3), r.IntN(12), r.IntN(2)})
	}
	return all
}

// Each verb against a model of it in Go: the same ends call by call, and the same rows at last.
func TestAnyOrderWithRepeatsGoesAsTheModelSays_B16(t *testing.T) {
	t.Parallel()
	pool := database(t)
	_, err := pool.Exec(t.Context(), `INSERT INTO payments SELECT 'k-' || n FROM generate_series(0, 2) n;
		INSERT INTO accounts SELECT 'b', 'k-' || n FROM generate_series(0, 2) n;
		INSERT INTO orders SELECT 'k-' || n, 0, 'v-0', 'n' FROM generate_series(0, 2) n`)
	require.NoError(t, err)
	type state struct{ n, value int }
	for name, model := range map[string]struct {
		do     verb
		values func(message) upsert.Values
		next   func(m message, is map[int]state, done map[int]message) end
		rows   string // what the model's states look like in the table
	}{
		"Row": {shipments.Insert,
			func(m message) upsert.Values {
				return upsert.Values{"order_id": key(m.key), "customer_id": nil, "quantity": 1 + m.value, "label": key(m.key)}
			},
			func(m message, is map[int]state, _ map[int]message) end {
				was, there := is[m.key]
				switch {
				case !there:
					is[m.key] = state{0, m.value}
					return upsert.Applied
				case was.value == m.value:
					return upsert.Duplicate
				}
				return upsert.ErrConflict
			},
			"SELECT order_id, 0, quantity - 1 FROM shop.shipments",
		},
		"Once": {receipts.Set,
			func(m message) upsert.Values {
				return upsert.Values{"order_id": key(m.key), "receipt": fmt.Sprint(m.value)}
			},
			func(m message, is map[int]state, _ map[int]message) end {
				was, there := is[m.key]
				switch {
				case !there:
					is[m.key] = state{0, m.value}
					return upsert.Applied
				case was.value == m.value:
					return upsert.Duplicate
				}
				return upsert.ErrConflict
			},
			"SELECT order_id, 0, receipt::int FROM payments",
		},
		"Sum": {balances.Add,
			func(m message) upsert.Values {
				return upsert.Values{"operation_id": fmt.Sprint(m.n), "bank": "b", "customer_id": key(m.key), "delta": 1 + m.value}
			},
			func(m message, is map[int]state, done map[int]message) end {
				before, there := done[m.n]
				switch {
				case !there:
					done[m.n] = m
					is[m.key] = state{0, is[m.key].value + 1 + m.value}
					return upsert.Applied
				case before == m:
					return upsert.Duplicate
				}
				return upsert.ErrConflict
			},
			"SELECT customer_id, 0, balance_cents FROM accounts WHERE balance_cents <> 0",
		},
		"Versioned": {orders.Update,
			func(m message) upsert.Values {
				return upsert.Values{"order_id": key(m.key), "version": m.n, "state": fmt.Sprint("v-", m.value), "note": "n"}
			},
			func(m message, is map[int]state, _ map[int]message) end {
				switch was := is[m.key]; {
				case was.n == m.n:
					is[m.key] = state{m.n + 1, m.value}
					return upsert.Applied
				case was.n == m.n+1 && was.value == m.value:
					return upsert.Duplicate
				}
				return upsert.ErrStale
			},
			"SELECT order_id, version, substr(state, 3)::int FROM orders WHERE version > 0",
		},
		"Newest": {prices.Put,
			func(m message) upsert.Values {
				return upsert.Values{"sku": key(m.key), "as_of": m.n, "cents": m.value}
			},
			func(m message, is map[int]state, _ map[int]message) end {
				was, there := is[m.key]
				switch {
				case !there, was.n < m.n:
					is[m.key] = state{m.n, m.value}
					return upsert.Applied
				case was.n > m.n:
					return upsert.Stale
				case was.value == m.value:
					return upsert.Duplicate
				}
				return upsert.ErrConflict
			},
			"SELECT sku, as_of, cents FROM prices",
		},
	} {
		r := source(t)
		is, done, seen := make(map[int]state), make(map[int]message), make(map[end]int)
		for _, m := range shuffled(r, messages(r)) {
			want := model.next(m, is, done)
			require.Equal(t, want, run(t, pool, model.do, model.values(m)), "%s: %+v", name, m)
			seen[want]++
		}
		require.Greater(t, len(seen), 2, "%s: %v", name, seen)
		rows, err := pool.Query(t.Context(), model.rows)
		require.NoError(t, err)
		at := make(map[int]state)
		var k string
		var n, value int
		_, err = pgx.ForEachRow(rows, []any{&k, &n, &value}, func() error {
			var number int
			_, err := fmt.Sscanf(k, "k-%d", &number)
			at[number] = state{n, value}
			return err
		})
		require.NoError(t, err)
		require.Equal(t, is, at, name)
	}
}

func key(n int) string { return fmt.Sprint("k-", n) }

// Eight members work through the same messages at once, each in an order of its own.
func TestManyAtOnceComeToOneEnd_B16(t *testing.T) {
	t.Parallel()
	pool := database(t)
	const members, keys, versions = 8, 3, 10
	_, err := pool.Exec(t.Context(), "INSERT INTO accounts SELECT 'b', 'k-' || n FROM generate_series(0, 2) n")
	require.NoError(t, err)
	var all []message
	for k := range keys {
		for n := range versions {
			all = append(all, message{k, n, 100*k + n})
		}
	}
	applied := make(chan string, 3*members*len(all))
	var wg sync.WaitGroup
	for range members {
		r := source(t)
		wg.Go(func() {
			for _, m := range shuffled(r, all) {
				work(t, pool, m, applied)
			}
		})
	}
	wg.Wait()
	close(applied)
	times := make(map[string]int)
	for a := range applied {
		times[a]++
	}
	require.Len(t, times, 2*len(all), "every row and every delta was applied")
	for what, n := range times {
		require.Equal(t, 1, n, what)
	}
	require.Equal(t, int64(keys*versions), one[int64](t, pool, "SELECT count(*) FROM shop.shipments"))
	for k := range keys {
		sum := 0
		for n := range versions {
			sum += 100*k + n
		}
		require.Equal(t, int64(sum), one[int64](t, pool, "SELECT balance_cents FROM accounts WHERE customer_id = $1", key(k)))
		require.Equal(t, int64(100*k+versions-1), one[int64](t, pool, "SELECT cents FROM prices WHERE sku = $1", key(k)))
	}
}

// work is what a handler does with a message: a row, a sum and a copy, in one transaction.
func work(t *testing.T, pool *pgxpool.Pool, m message, applied chan<- string) {
	id := fmt.Sprintf("%d/%d", m.key, m.n)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		row, err := shipments.Insert(t.Context(), tx, upsert.Values{"order_id": id, "customer_id": nil, "quantity": 1 + m.value, "label": id})
		if err != nil {
			return err
		}
		sum, err := balances.Add(t.Context(), tx, upsert.Values{"operation_id": id, "bank": "b", "customer_id": key(m.key), "delta": m.value})
		if err != nil {
			return err
		}
		if _, err := prices.Put(t.Context(), tx, upsert.Values{"sku": key(m.key), "as_of": m.n, "cents": m.value}); err != nil {
			return err
		}
		if row != sum {
			return fmt.Errorf("%s: the row was %s, its delta %s", id, row, sum)
		}
		if row == upsert.Applied {
			applied <- "row " + id
			applied <- "delta " + id
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
