package console

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	relays "github.com/troupe-go/troupe/internal/admin/relaydesk"
)

func TestTheRelayPageTellsWhoPublishesAndWhatIsInTheWay(t *testing.T) {
	t.Parallel()
	d := newDesk(t, twice(t))
	require.Contains(t, d.html("/relay"), "No relay has run yet")
	d.Leads()
	for _, status := range []string{"parked", "parked", "retrying", "waiting"} {
		d.FailedRow("shop.none.commands", status, "UNKNOWN_TOPIC_OR_PARTITION")
	}
	page := d.html("/relay")
	for _, text := range []string{"relay-7f9c", "the server and the role allow it", "troupe_order", "UNKNOWN_TOPIC_OR_PARTITION", "Retry all", "What the slot kept", "active, 2 rows parked"} {
		require.Contains(t, page, text)
	}
	require.NotContains(t, page, `data-status="active"`, "it is not shown as if all were well")
	f := facts[relayFacts](d, "/relay")
	require.NotNil(t, f.Databases[0].Relays[0].Topics[0].Since)
	f.Databases[0].Relays[0].Topics[0].Since = nil
	require.Equal(t, []relays.Topic{{Topic: "shop.none.commands", Parked: 2, Retrying: 1, Waiting: 1, Error: "UNKNOWN_TOPIC_OR_PARTITION"}}, f.Databases[0].Relays[0].Topics)
	require.Len(t, facts[failedRowsFacts](d, "/relay/rows?db=order&status=parked").Rows, 2)
	require.Contains(t, d.html("/relay/rows?db=order&limit=2"), "after=")
	require.Contains(t, d.html("/"), "2 rows for shop.none.commands cannot be published; behind them 1 row of the same key waits: UNKNOWN_TOPIC_OR_PARTITION")
}

// TestTheOverviewNamesTheErrorOfFailedRows checks rows that wait for their topic, and a parked row that is older than the rows that
// the relay has not tried.
func TestTheOverviewNamesTheErrorOfFailedRows(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.Leads()
	d.FailedRow("shop.none.commands", "retrying", "UNKNOWN_TOPIC_OR_PARTITION")
	d.FailedRow("shop.large.commands", "parked", "MESSAGE_TOO_LARGE")
	_, err := d.Pool.Exec(t.Context(), "UPDATE troupe.outbox SET created_at = now() - interval '91 minutes'")
	require.NoError(t, err)
	_, err = d.Pool.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, type) VALUES ('shop.billing.commands', 'Fresh')")
	require.NoError(t, err)
	page := d.html("/")
	for _, text := range []string{
		"1 row is refused for shop.none.commands and tried again by the relay: UNKNOWN_TOPIC_OR_PARTITION", "if the topic is missing, create it",
		"1 row for shop.large.commands cannot be published: MESSAGE_TOO_LARGE",
	} {
		require.Contains(t, page, text)
	}
	require.NotContains(t, page, "min behind")
	require.NotContains(t, page, "Kafka or the network")
}

// TestTheOverviewHasATaskForEachCause checks that no cause is shown under the name of another.
func TestTheOverviewHasATaskForEachCause(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.letters()
	var texts []string
	for _, one := range facts[overviewFacts](d, "/").Needs {
		if strings.Contains(one.Text, "dead letter") {
			texts = append(texts, one.Text)
			require.Contains(t, one.Page, "cause=")
		}
	}
	require.Equal(t, []string{`3 dead letters: order o-*: currency "*" is not known`, "1 dead letter: charge card: no answer in 5s"}, texts)
}

func TestParkedRowsAreRetriedAndDiscarded(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var ids []string
	for range 4 {
		ids = append(ids, d.FailedRow("shop.none.commands", "parked", "UNKNOWN_TOPIC_OR_PARTITION"))
	}
	require.Contains(t, d.html(at("/relay/row", "db", "order", "id", ids[0])), "1999")
	require.Equal(t, http.StatusBadRequest, d.post("/relay/row", form("db", "order", "id", ids[0], "do", "discard")).Code, "no reason")
	require.Equal(t, http.StatusOK, d.post("/relay/row", form("db", "order", "id", ids[0], "do", "discard", "reason", "ticket 1")).Code)
	require.Equal(t, http.StatusConflict, d.post("/relay/row", form("db", "order", "id", ids[0], "do", "discard", "reason", "ticket 1")).Code)
	require.Equal(t, http.StatusNotFound, d.get(at("/relay/row", "db", "order", "id", ids[0])).Code)
	require.Equal(t, http.StatusOK, d.post("/relay/row", form("db", "order", "id", ids[1], "do", "retry")).Code)
	require.Equal(t, relays.Retrying, facts[failedRowFacts](d, at("/relay/row", "db", "order", "id", ids[1])).Row.Status)

	preview := facts[relayActFacts](d, at("/relay/act", "db", "order", "do", "discard", "topic", "shop.none.commands"))
	require.Equal(t, 2, preview.Topic.Parked)
	require.Len(t, preview.Rows, 2)
	require.Equal(t, http.StatusBadRequest, d.post("/relay/act", form("db", "order", "do", "discard", "topic", "shop.none.commands")).Code, "no reason")
	require.Equal(t, http.StatusBadRequest, d.post("/relay/act", form("db", "order", "do", "discard", "reason", "all of them?")).Code, "no topic")
	for count, want := range map[string]int{"": http.StatusBadRequest, "two": http.StatusBadRequest, "1": http.StatusConflict, "3": http.StatusConflict} {
		w := d.post("/relay/act", form("db", "order", "do", "discard", "topic", "shop.none.commands", "reason", "ticket 2", "count", count))
		require.Equal(t, want, w.Code, "%s: %s", count, w.Body)
	}
	w := d.post("/relay/act", form("db", "order", "do", "discard", "topic", "shop.none.commands", "reason", "ticket 2", "count", "2"))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Equal(t, relayDone{"discard", 2}, decoded[relayDone](t, w.Body.Bytes()))
	require.Contains(t, d.html(at("/relay/act", "db", "order", "do", "retry", "topic", "shop.none.commands")), "nothing to do")
	var recorded int
	require.NoError(t, d.Pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.outbox_repairs WHERE actor = 'ann'").Scan(&recorded))
	require.Equal(t, 4, recorded)
}

// A service may write rows for any topic. One that differs from another topic in a blank looks the same on a page, and an operator who discards
// its rows must not discard the ones of the other topic.
func TestATopicWithABlankIsNoOtherTopic(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	const topic, odd = "shop.payment.commands", " shop.payment.commands "
	own, other := d.FailedRow(topic, "parked", "refused"), d.FailedRow(odd, "parked", "no such topic")
	rows := facts[failedRowsFacts](d, at("/relay/rows", "db", "order", "topic", odd)).Rows
	require.Len(t, rows, 1)
	require.Equal(t, other, rows[0].ID.String())
	require.Equal(t, odd, facts[relayActFacts](d, at("/relay/act", "db", "order", "do", "discard", "topic", odd)).Topic.Topic)
	w := d.post("/relay/act", form("db", "order", "do", "discard", "topic", odd, "reason", "ticket 2", "count", "1"))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	rows = facts[failedRowsFacts](d, "/relay/rows?db=order").Rows
	require.Len(t, rows, 1)
	require.Equal(t, own, rows[0].ID.String())
}

func TestTheRelaysArePausedAndResumed(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.Leads()
	require.Contains(t, d.html("/relay/act?db=order&do=pause"), "publish nothing more")
	require.Equal(t, http.StatusConflict, d.post("/relay/act", form("db", "order", "do", "resume")).Code)
	require.Equal(t, http.StatusBadRequest, d.post("/relay/act", form("db", "order", "do", "pause")).Code, "no reason")
	require.Equal(t, http.StatusOK, d.post("/relay/act", form("db", "order", "do", "pause", "reason", "ticket 3")).Code)
	require.Equal(t, http.StatusConflict, d.post("/relay/act", form("db", "order", "do", "pause", "reason", "ticket 3")).Code)
	require.Contains(t, d.html("/relay"), "by ann: ticket 3")
	require.Contains(t, d.html("/"), "are paused by")
	require.Contains(t, d.html("/relay/act?db=order&do=pause"), "paused already")
	require.Equal(t, http.StatusOK, d.post("/relay/act", form("db", "order", "do", "resume")).Code)
	require.Nil(t, facts[relayFacts](d, "/relay").Databases[0].Relays[0].Paused)
	turns := facts[relayActFacts](d, "/relay/act?db=order&do=pause").Turns
	require.Equal(t, []string{"resume", "pause"}, []string{turns[0].Action, turns[1].Action})
	require.Equal(t, http.StatusNotFound, d.get("/relay/act?db=order&do=pause&table=public.none").Code)
}

// A column is missing if there is no sample, and none is drawn outside of the day.
func TestTheChartOfASlotHasAColumnWhereSomebodyLooked(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 12, 2, 0, 0, time.UTC)
	require.Nil(t, chartKept(nil, now))
	c := chartKept([]relays.Sample{
		{At: now.Add(-25 * time.Hour), Retained: 1}, {At: now.Truncate(keptEvery).Add(-time.Hour), Retained: 50}, {At: now.Truncate(keptEvery), Retained: 100},
	}, now)
	require.EqualValues(t, 100, c.Most)
	require.Len(t, c.Bars, 2)
	require.InDelta(t, chartWidth, c.Bars[1].X+c.Bars[1].Width, 0.3, "now is at the right")
	require.Greater(t, c.Bars[0].Y, c.Bars[1].Y)
}
