package console

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// An operator sees how many sagas of a type are parked, types the number, and all of them are retried in the operator's name.
func TestAllParkedSagasOfATypeAreRetriedByAButton(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, key := range []string{"o-1", "o-2"} {
		d.Fail(key, "ShipOrder", "no lorry")
		d.Order(key, saga.Parked)
		d.Fail(key, "ShipOrder", "")
	}
	address := at("/sagas/retry", "db", "order", "saga", "order")
	require.Contains(t, d.html(at("/sagas", "db", "order")), "Retry all parked order…", "the type needs no filter")
	require.Contains(t, d.html("/"), "Retry all parked order…")
	preview := facts[retryFacts](d, address)
	require.Equal(t, 2, preview.Parked)
	require.Equal(t, []sagaCount{{"shipping exhausted", 2, "order/o-1"}}, preview.Cans)
	require.Empty(t, preview.Stays)
	require.Contains(t, d.html(address), "2 of 2 sagas")

	retry := func(more ...string) []string {
		return append([]string{"db", "order", "do", "retry", "reason", "ticket 9"}, more...)
	}
	for name, one := range map[string]struct {
		want   int
		says   string
		values []string
	}{
		"no type":      {http.StatusBadRequest, "saga: want a type", retry("count", "2")},
		"unknown type": {http.StatusNotFound, "troupe saga list --counts", retry("saga", "oder", "count", "2")},
		"no count":     {http.StatusBadRequest, "count: want how many", retry("saga", "order")},
		"other count":  {http.StatusConflict, "there are 2 now, and not 3: nothing was done", retry("saga", "order", "count", "3")},
		"wrong rate":   {http.StatusBadRequest, "rate", retry("saga", "order", "count", "2", "rate", "0")},
		"no reason":    {http.StatusBadRequest, "reason", []string{"db", "order", "do", "retry", "saga", "order", "count", "2"}},
	} {
		w := d.post("/sagas/retry", form(one.values...))
		require.Equal(t, one.want, w.Code, "%s: %s", name, w.Body)
		require.Contains(t, w.Body.String(), one.says, name)
	}
	require.Equal(t, 2, facts[retryFacts](d, address).Parked)

	w := d.post("/sagas/retry", form(retry("saga", "order", "count", "2")...))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	ended := d.work(decoded[Work](t, w.Body.Bytes()).ID)
	require.Empty(t, ended.Error)
	require.Equal(t, []int{2, 2, 0}, []int{ended.Total, ended.Done, ended.Refused})
	page := d.html(at("/work", "id", ended.ID))
	require.Contains(t, page, "Retry of sagas in order")
	require.Contains(t, page, `<a href="/sagas" aria-current="page">`)
	for _, key := range []string{"o-1", "o-2"} {
		d.Await("order/"+key, saga.Completed)
		require.Contains(t, d.html(at("/saga", "db", "order", "id", "order/"+key)), "ticket 9")
	}
	require.Contains(t, d.html(address), "there is nothing to do")
	w = d.post("/sagas/retry", form(retry("saga", "order", "count", "0")...))
	require.Equal(t, http.StatusConflict, w.Code, w.Body)
}

// A preview of many parked sagas checks the first ones, and counts all.
func TestAPreviewOfARetryChecksTheFirstSagas(t *testing.T) {
	t.Parallel()
	s, err := sampleSagas(func(add func(id, can, obstacle string) error) error {
		for i := range 2 * sampled {
			if err := add(fmt.Sprint("order/", i), "", fmt.Sprint("reason ", i%150)); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []int{sampled, 0, mostCounts}, []int{s.Looked, s.Can, len(s.Stays)})
	require.True(t, s.More)
	require.Equal(t, sagaCount{"reason 0", 2, "order/0"}, s.Stays[0])
}
