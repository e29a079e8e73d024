package console

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExpectationsAreShownByStatusWithLinksToTheirMessages also checks the overview, and a status that does not exist.
func TestExpectationsAreShownByStatusWithLinksToTheirMessages(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.Expect("shipped", "o")
	d.Expect("paid", "p")
	f := facts[expectationsFacts](d, "/expectations").Databases[0]
	require.Len(t, f.Counts, 2)
	require.Equal(t, []int{1, 1, 1}, []int{f.Counts[0].Missing, f.Counts[0].Waiting, f.Counts[0].Late})
	require.Len(t, f.Expectations, 6)
	page := d.html(at("/expectations", "name", "shipped", "status", "missing"))
	require.Contains(t, page, at("/messages", "q", "o-1"))
	require.NotContains(t, page, "o-2")
	require.NotContains(t, page, "p-1")
	one := facts[expectationsFacts](d, at("/expectations", "db", "order", "limit", "1"))
	require.Len(t, one.Databases[0].Expectations, 1)
	require.Len(t, facts[expectationsFacts](d, at("/expectations", "db", "order", "after", one.Databases[0].Next)).Databases[0].Expectations, 5)
	o := facts[overviewFacts](d, "/")
	require.Equal(t, 2, o.Databases[0].Missing.Count)
	require.Contains(t, d.html("/"), "2 expected events are missing")
	require.Equal(t, http.StatusBadRequest, d.get("/expectations?status=lost").Code)
	require.Contains(t, d.html("/expectations?key=none"), "No expectation matches")
}
