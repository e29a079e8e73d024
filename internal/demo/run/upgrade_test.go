package run

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

func TestAnUpgradeReleasesAllOrdersInEvenShares(t *testing.T) {
	for _, orders := range []int{0, 1, 7, 24, 400} {
		u := newUpgrade(nil, nil, nil, orders)
		for range 24 {
			before := len(u.released)
			u.release(24)
			require.InDelta(t, float64(orders)/24, len(u.released)-before, 1)
			u.replaced++
		}
		require.Len(t, u.released, orders)
	}
}

func TestAnOrderIsPostedOnceItIsReleased(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }))
	defer server.Close()
	released := make(chan struct{})
	p := newPoster(server.URL, 0)
	p.released = released
	ended := make(chan error, 1)
	go func() { ended <- p.post(t.Context(), someOrders(3)) }()
	released <- struct{}{}
	released <- struct{}{}
	testkit.Wait(t, "two orders", func() (bool, error) { return p.accepted.Load() == 2, nil })
	close(released)
	require.NoError(t, <-ended)
	require.EqualValues(t, 3, p.accepted.Load())
}
