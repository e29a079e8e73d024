package run

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/demo/orders"
)

func someOrders(n int) []orders.Order {
	var all []orders.Order
	for i := range n {
		all = append(all, orders.Order{
			ID: "o-" + string(rune('a'+i)), CustomerID: "c", PlacedAt: "1997-01-31", Quantity: 2, AmountCents: 2930,
		})
	}
	return all
}

func TestOrdersArePostedUntilTheyAreTaken(t *testing.T) {
	var mu sync.Mutex
	requests := make(map[string]int)
	bodies := make(map[string]map[string]any)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		key := r.Header.Get("Idempotency-Key")
		requests[key]++
		switch requests[key] {
		case 1:
			panic(http.ErrAbortHandler) // like a service that is killed
		case 2:
			http.Error(w, "no database", http.StatusServiceUnavailable)
			return
		}
		var body map[string]any
		require.NoError(t, json.NewDecoder(r.Body).Decode(&body))
		bodies[key] = body
		w.WriteHeader(http.StatusAccepted)
	}))
	defer server.Close()
	p := newPoster(server.URL, 0)
	require.NoError(t, p.post(t.Context(), someOrders(20)))
	require.EqualValues(t, 20, p.accepted.Load())
	for key, n := range requests {
		require.Equal(t, 3, n, key)
	}
	require.GreaterOrEqual(t, p.repeated.Load(), int64(20), "net/http repeats some by itself, since they have a key")
	require.Len(t, bodies, 20)
	require.Equal(t, map[string]any{
		"order_id": "o-a", "customer_id": "c", "placed_at": "1997-01-31", "quantity": 2.0, "amount": "29.30",
	}, bodies["o-a"])
}

func TestARefusedOrderEndsThePosting(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, `{"detail":"there is another order"}`, http.StatusConflict)
	}))
	defer server.Close()
	err := newPoster(server.URL, 0).post(t.Context(), someOrders(3))
	require.ErrorContains(t, err, "post order o-")
	require.ErrorContains(t, err, "409 Conflict: {\"detail\":\"there is another order\"}")
}

func TestPostingEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cancel()
		http.Error(w, "no database", http.StatusServiceUnavailable)
	}))
	defer server.Close()
	require.ErrorIs(t, newPoster(server.URL, 0).post(ctx, someOrders(20)), context.Canceled)
}

func TestAPaceIsKept(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusAccepted) }))
	defer server.Close()
	began := time.Now()
	require.NoError(t, newPoster(server.URL, 10*time.Millisecond).post(t.Context(), someOrders(20)))
	require.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond)
}
