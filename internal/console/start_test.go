package console

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

func TestASagaIsStartedAsItsPreviewSaid(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.Order("o-1", saga.Completed)
	hash := facts[definitionsFacts](d, "/definitions").Databases[0].Definitions[0].Definition
	require.Contains(t, d.html(at("/definition", "db", "order", "hash", hash)), "Start a saga by hand")
	require.Contains(t, d.html(at("/definition/start", "db", "order", "hash", hash)), "<code>amount_cents</code> int")
	const input = `{"customer_id": "c-7", "amount_cents": 1999, "title": 7, "quantity": 1}`
	address := at("/definition/start", "db", "order", "hash", hash, "key", "o-2", "input", input)

	preview := facts[startFacts](d, address).Would
	require.False(t, preview.Done)
	require.Equal(t, "order/o-2", preview.ID)
	require.Equal(t, "ChargePayment", preview.Commands[0].Type)
	require.Contains(t, d.html(address), "<b>ChargePayment</b>")
	require.Len(t, facts[sagasFacts](d, "/sagas").Sagas, 1, "a preview does nothing")

	start := func(more ...string) []string {
		return append([]string{"db", "order", "hash", hash, "do", "start", "key", "o-2", "input", input}, more...)
	}
	require.Equal(t, http.StatusBadRequest, d.post("/definition/start", form(start()...)).Code, "no reason")
	w := d.post("/definition/start", form(start("reason", "ticket 9: by telephone")...))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.True(t, decoded[actFacts](t, w.Body.Bytes()).Done)
	d.Await("order/o-2", saga.Completed)
	require.Contains(t, d.html(at("/saga", "db", "order", "id", "order/o-2")), "ticket 9: by telephone")

	w = d.post("/definition/start", form(start("reason", "ticket 9: by telephone")...))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	again := decoded[actFacts](t, w.Body.Bytes())
	require.False(t, again.Done)
	require.Equal(t, "it has started already", again.Ignored)
	require.Contains(t, d.html(address), "nothing would be started")
}

func TestAMissingVariableOfAStartIsShownAtItsField(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	hash := d.Parcels() // no saga of it names a coordinator
	for field, values := range map[string][]string{
		"key": {"key", ""}, "input": {"key", "o-1", "input", "{"}, "hop": {"key", "o-1"},
		"a variable": {"key", "o-1", "input", `{"colour": "red"}`}, "another key": {"key", "o-1", "input", `{"order_id": "o-2"}`},
		"a type": {"key", "o-1", "input", `{"amount_cents": "many"}`}, "a bad hop": {"key", "o-1", "hop", "x"}, "a group alone": {"key", "o-1", "group", "x"},
	} {
		address := at("/definition/start", append([]string{"db", "order", "hash", hash}, values...)...)
		w := d.page(address)
		require.Equal(t, http.StatusUnprocessableEntity, w.Code, field)
		at := map[string]string{"a variable": "input", "another key": "input", "a type": "input", "a bad hop": "hop", "a group alone": "hop"}[field]
		if at == "" {
			at = field
		}
		require.Contains(t, w.Body.String(), `aria-describedby="`+at+`-wrong"`, field)
		require.Contains(t, w.Body.String(), `id="`+at+`-wrong"`, field)
		require.Equal(t, http.StatusUnprocessableEntity, d.get(address).Code, "for programs, too")
	}
	hop := d.Flow + ".order"
	would := facts[startFacts](d, at("/definition/start", "db", "order", "hash", hash, "key", "o-1", "hop", hop, "input", "{}")).Would
	require.Equal(t, saga.Parked, would.Status, "the first command cannot be built, and the preview reports this")
	require.NotEmpty(t, would.Alert)
}
