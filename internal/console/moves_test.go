package console

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

func TestSagasMoveToAnotherVersionAsThePreviewSaid(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	first := d.parked("o-1")
	d.Fail("o-2", "ShipOrder", "no lorry")
	second := d.Order("o-2", saga.Parked)
	from := facts[definitionsFacts](d, "/definitions").Databases[0].Definitions[0].Definition
	to := d.Parcels()
	require.Contains(t, d.html(at("/definition", "db", "order", "hash", to)), "Its sagas to this version")

	address := at("/definition/move", "db", "order", "from", from, "to", to)
	const why = "step shipping is exhausted and asks for ShipOrder of hop shipping, not ShipParcel of hop shipping"
	preview := facts[moveFacts](d, address)
	require.Equal(t, 2, preview.Looked)
	require.Equal(t, 1, preview.Can)
	require.False(t, preview.More)
	require.Equal(t, []sagaCount{{why, 1, second}}, preview.Stays)
	require.NotEmpty(t, preview.Changes)
	require.NotEmpty(t, preview.Findings, "findings of the verifier")
	require.Contains(t, d.html(address), "1 of 2 sagas")
	require.Contains(t, d.html(address), why)
	for want, values := range map[int][]string{
		http.StatusBadRequest: {"from", to}, http.StatusNotFound: {"from", "none"}, // to itself, and from an unknown definition
	} {
		w := d.post("/definition/move", form(append(values, "db", "order", "to", to, "do", "migrate", "reason", "ticket 8")...))
		require.Equal(t, want, w.Code, w.Body)
	}
	require.Equal(t, http.StatusBadRequest, d.post("/definition/move", form("db", "order", "from", from, "to", to, "do", "migrate")).Code, "no reason")
	require.Equal(t, from, facts[sagaFacts](d, at("/saga", "db", "order", "id", first)).Saga.Row.Definition, "a preview does nothing")

	w := d.post("/definition/move", form("db", "order", "from", from, "to", to, "do", "migrate", "reason", "ticket 8: parcels"))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	ended := d.work(decoded[Work](t, w.Body.Bytes()).ID)
	require.Empty(t, ended.Error)
	require.Equal(t, []int{2, 1, 1}, []int{ended.Total, ended.Done, ended.Refused})
	require.Equal(t, []Refusal{{second, why}}, ended.Refusals)
	page := d.html(at("/work", "id", ended.ID))
	require.Contains(t, page, "Move of sagas in order")
	require.Contains(t, page, `<a href="/definitions" aria-current="page">`)

	require.Contains(t, d.html(at("/saga", "db", "order", "id", first)), "ticket 8: parcels")
	require.Equal(t, 1, facts[moveFacts](d, address).Looked, "the other one has moved")
	require.Equal(t, to, facts[sagasFacts](d, at("/sagas", "definition", to)).Sagas[0].Definition)
}
