package console

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/erasure"
	"github.com/troupe-go/troupe/internal/schedule"
)

// TestActionsAreListedWithActorAndReason checks that the actions on each kind of object are listed with their actor and reason, that similar actions on
// several objects are one line, and that each line has a page of its object.
func TestActionsAreListedWithActorAndReason(t *testing.T) {
	t.Parallel()
	d := newDesk(t, twice(t))
	require.Contains(t, d.html("/actions"), "No operator has acted yet")
	_, err := erasure.Desk{Pool: d.Pool}.Erase(t.Context(), "c-1", admin.Actor{Name: "ann", Reason: "ticket 0"})
	require.NoError(t, err)
	ids := d.letters()
	row := d.FailedRow("shop.none.commands", "parked", "UNKNOWN_TOPIC_OR_PARTITION")
	saga := d.parked("o-1001")
	for _, one := range []struct {
		page   string
		values []string
	}{
		{"/dead-letter", []string{"id", ids[0], "do", "discard", "reason", "ticket 1"}},
		{"/dead-letter", []string{"id", ids[1], "do", "discard", "reason", "ticket 1"}},
		{"/held/key", []string{"place", "shop.billing.commands/0/9", "do", "retry", "actor", "bob"}},
		{"/relay/row", []string{"id", row, "do", "discard", "reason", "ticket 2"}},
		{"/relay/act", []string{"do", "pause", "reason", "ticket 3", "actor", "bob"}},
		{"/saga/act", []string{"id", saga, "do", "retry", "step", "inventory", "reason", "ticket 4"}},
	} {
		w := d.post(one.page, form(append([]string{"db", "order"}, one.values...)...))
		require.Less(t, w.Code, http.StatusBadRequest, "%s: %s", one.page, w.Body)
	}
	schedules, by := schedule.Desk{Pool: d.Pool}, admin.Actor{Name: "ann", Reason: "ticket 5"}
	_, err = schedules.Set(t.Context(), schedule.Spec{Name: "nightly", Cron: "@daily", Zone: "UTC", Topic: "shop.report.commands", Type: "Make"}, by)
	require.NoError(t, err)
	require.NoError(t, schedules.Pause(t.Context(), "nightly", by))
	f := facts[actionsFacts](d, "/actions?since=1h&db=order")
	type line struct {
		Actor, Action, Object, Reason string
		Count                         int
	}
	var lines []line
	for _, a := range f.Databases[0].Actions {
		lines = append(lines, line{a.Actor, a.Action, a.Object, a.Reason, a.Count})
	}
	require.Equal(t, []line{
		{"ann", "pause", "schedule", "ticket 5", 1}, {"ann", "set", "schedule", "ticket 5", 1},
		{"ann", "retry", "saga", "ticket 4", 1}, {"bob", "pause", "relay", "ticket 3", 1}, {"ann", "discard", "outbox row", "ticket 2", 1},
		{"bob", "retry", "held message", "", 1}, {"ann", "discard", "dead letter", "ticket 1", 2},
		{"ann", "erase", "erasure", "ticket 0", 1},
	}, lines)
	var examples []string
	for _, a := range f.Databases[0].Actions[:5] {
		examples = append(examples, a.Example)
	}
	require.Equal(t, []string{"nightly", "nightly", saga, "", row}, examples)
	require.Equal(t, "@daily UTC, catch-up 0, sends Make to shop.report.commands", strings.TrimPrefix(f.Databases[0].Actions[1].Subject, "new: "))

	page := d.html("/actions")
	require.Contains(t, page, "<b>discard</b> 2 × dead letter")
	for _, one := range (actionsFacts{Databases: f.Databases}).Rows() {
		if one.Object == "erasure" { // the console has no page of it
			require.Empty(t, one.Page)
			continue
		}
		require.Equal(t, http.StatusOK, d.page(one.Page).Code, one.Page)
	}
	require.Len(t, facts[actionsFacts](d, "/actions?actor=bob&db=order").Databases[0].Actions, 2)
	require.Contains(t, d.html("/actions?actor=carol"), "No action fits")

	var some []line
	after := ""
	for range 4 {
		f := facts[actionsFacts](d, at("/actions", "db", "order", "limit", "2", "after", after))
		for _, a := range f.Databases[0].Actions {
			some = append(some, line{a.Actor, a.Action, a.Object, a.Reason, a.Count})
		}
		after = f.Databases[0].Next
	}
	require.Equal(t, lines, some, "a page begins where the previous one ended")
	require.Empty(t, after)
	require.Equal(t, http.StatusBadRequest, d.get("/actions?since=yesterday").Code)
	require.Equal(t, http.StatusBadRequest, d.get("/actions?since=1h&before=2h").Code)
}
