package console

import (
	"html"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Rows of two topics are parked under one id, such as the copy of a dead letter and a redrive of it. The pages show, retry and discard each of them
// by its topic, as the command does.
func TestARowOfOneOfSeveralTopicsIsRepairedByItsTopic(t *testing.T) {
	t.Parallel()
	d := newDesk(t, twice(t))
	id := d.FailedRow("shop.one.commands", "parked", "UNKNOWN_TOPIC_OR_PARTITION")
	other := d.FailedRow("shop.two.commands", "parked", "UNKNOWN_TOPIC_OR_PARTITION")
	for _, table := range []string{"outbox", "outbox_failures"} {
		_, err := d.Pool.Exec(t.Context(), "UPDATE troupe."+table+" SET id = $1 WHERE id = $2", id, other)
		require.NoError(t, err)
	}
	page := at("/relay/row", "db", "order", "id", id, "topic", "shop.two.commands")
	require.Contains(t, d.html("/relay/rows?db=order"), `href="`+html.EscapeString(page)+`"`)
	require.Equal(t, "shop.two.commands", facts[failedRowFacts](d, page).Row.Topic)
	require.Contains(t, d.browse(page, d.signIn(t, token)).Body.String(), `name="topic" value="shop.two.commands"`)
	w := d.post("/relay/row", form("db", "order", "id", id, "topic", "shop.two.commands", "do", "discard", "reason", "ticket 1"))
	require.Less(t, w.Code, http.StatusBadRequest, w.Body.String())
	var left string
	require.NoError(t, d.Pool.QueryRow(t.Context(), "SELECT string_agg(topic, ' ') FROM troupe.outbox_failures").Scan(&left))
	require.Equal(t, "shop.one.commands", left)
}
