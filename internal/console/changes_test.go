package console

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// TestTheOverviewComparesTheLastDayWithTheDayBefore checks dead letters by cause, sagas and the actions of operators, and the action
// that the console recommends for each stuck saga.
func TestTheOverviewComparesTheLastDayWithTheDayBefore(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ids := d.letters()
	_, err := d.Pool.Exec(t.Context(), "UPDATE troupe.dead_letters SET last_failed_at = last_failed_at - interval '26 hours' WHERE id = $1", ids[2])
	require.NoError(t, err)
	id := d.parked("o-1001")
	d.Order("o-1002", saga.Completed)
	require.Equal(t, http.StatusOK, d.post("/dead-letter", form("db", "order", "id", ids[0], "do", "discard", "reason", "ticket 1")).Code)

	o := facts[overviewFacts](d, "/")
	require.NotNil(t, o.Databases[0].Changes)
	c := o.Changed()
	lines := make(map[string][2]int)
	for _, one := range c.Lines {
		lines[one.Name] = [2]int{one.Now.Count, one.Earlier.Count}
	}
	require.Equal(t, map[string][2]int{
		"dead letters": {4, 1}, "sagas started, now parked": {1, 0}, "sagas started, now completed": {1, 0},
	}, lines, "a discarded dead letter counts, and so does the one of the saga's step")
	require.Equal(t, 2, c.Causes, "the time-out and the warehouse; the currency had a dead letter the day before")
	require.Equal(t, 4, c.Hours.Total())
	require.Equal(t, "discard", c.Actions[0].Action.Action)

	require.Equal(t, []stuckSaga{{Do: saga.ActRetry, Step: "inventory"}}, []stuckSaga{{Do: o.Databases[0].Stuck[0].Do, Step: o.Databases[0].Stuck[0].Step}})
	require.Equal(t, id, o.Databases[0].Stuck[0].ID)
	page := d.html("/")
	for _, text := range []string{"Stuck the longest", "Since yesterday", "the warehouse answers 503", "ticket 1", "do=retry&amp;id=order%2Fo-1001&amp;step=inventory", "Redrive 2 dead letters…", "</a>: discard <a"} {
		require.Contains(t, page, text)
	}
	require.Contains(t, d.html("/dead-letters"), "4 dead letters are open</b> since", "open ones of all causes")
	require.Contains(t, d.html("/held"), "1 key is held</b> since")
}

// TestLinksSurviveARestart opens each page by its address in another console with the same databases.
func TestLinksSurviveARestart(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ids := d.letters()
	saga := d.parked("o-1001")
	row := d.FailedRow("shop.none.commands", "parked", "UNKNOWN_TOPIC_OR_PARTITION")
	again, err := New(t.Context(), d.cfg)
	require.NoError(t, err)
	t.Cleanup(again.Close)
	again.limit = testLimit
	other := &desk{t: t, c: again}
	first := facts[lettersFacts](d, "/dead-letters/list?db=order&limit=1")
	for _, address := range []string{
		at("/saga", "db", "order", "id", saga), at("/sagas", "status", "parked", "oldest", "1"),
		at("/dead-letter", "db", "order", "id", ids[0]), at("/dead-letters/list", "db", "order", "limit", "1", "after", first.Next),
		at("/relay/row", "db", "order", "id", row), at("/held/key", "db", "order", "place", "shop.billing.commands/0/9"), at("/actions", "actor", "ann"),
	} {
		require.JSONEq(t, d.get(address).Body.String(), other.get(address).Body.String(), address)
		require.Equal(t, http.StatusOK, other.page(address).Code, address)
	}
}
