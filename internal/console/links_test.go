package console

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/console/stage"
)

// TestEachIDOnAPageIsALink opens each page that shows ids, names or actors, and expects for each of them a link to a page that exists.
func TestEachIDOnAPageIsALink(t *testing.T) {
	t.Parallel()
	d := newDesk(t, twice(t))
	d.letters()
	d.Schedules()
	d.Rebuilds()
	d.Expect("shipped", "o")
	saga := d.parked("o-1001")
	row := d.FailedRow("shop.none.commands", "parked", "UNKNOWN_TOPIC_OR_PARTITION")
	dead := d.Dead(5, stage.Letter{
		Key: "o-5", Type: "ChargeCard", Class: "timeout", Error: "charge card: no answer in 5s", Payload: "{}",
		Headers: []envelope.Header{{Key: ce.HeaderSagaID, Value: []byte(saga)}, {Key: ce.HeaderCausationID, Value: []byte("charge-3")}},
	}).String()
	act := func(address string, values ...string) {
		t.Helper()
		require.Equal(t, http.StatusOK, d.post(address, form(append(values, "db", "order", "reason", "ticket 1")...)).Code, address)
	}
	act("/dead-letter", "id", dead, "do", "edit", "payload", `{"order_id": "o-5"}`)
	act("/saga/act", "id", saga, "do", "set", "step", "inventory", "result", `{"payment_id": "p-2"}`)
	act("/relay/act", "do", "pause")
	const group, handler, topic, place = "shop.billing", "shop.billing/ChargeCard", "shop.billing.commands", "shop.billing.commands/0/9"
	ann, hop := at("/actions", "actor", "ann"), facts[sagaFacts](d, at("/saga", "db", "order", "id", saga)).Saga.Hop
	for address, links := range map[string][]string{
		"/": {at("/saga", "db", "order", "id", saga), ann, "/actions?db=order", at("/relay/rows", "db", "order", "status", "parked")},
		at("/dead-letter", "db", "order", "id", dead): {
			at("/dead-letters", "db", "order", "handler", handler), at("/dead-letters", "db", "order", "group", group), at("/held", "db", "order", "group", group),
			at("/dead-letters", "db", "order", "topic", topic), "/dead-letters?db=order", "/messages?q=o-5", "/messages?q=charge-5", ann,
			at("/messages", "q", saga), "/messages?q=charge-3",
		},
		"/dead-letters": {at("/dead-letters", "db", "order", "handler", handler)},
		at("/held/key", "db", "order", "place", place): {
			"/messages?q=o-9", "/messages?q=charge-9", at("/held", "db", "order", "group", group), at("/dead-letters", "db", "order", "group", group),
			at("/held", "db", "order", "topic", topic), "/held?db=order",
		},
		"/held":                    {at("/held/key", "db", "order", "place", place, "group", group)},
		"/messages?q=o-9":          {"/messages?q=o-9", at("/held", "db", "order", "topic", topic)},
		at("/messages", "q", saga): {at("/saga", "db", "order", "id", saga)},
		at("/messages", "q", row):  {at("/relay/row", "db", "order", "id", row, "topic", "shop.none.commands")},
		"/expectations": {
			at("/expectations", "db", "order", "group", "shop.order"), at("/expectations", "db", "order", "group", "shop.order", "name", "shipped"), "/messages?q=o-1",
		},
		"/schedules": {at("/sagas", "db", "order", "saga", "billing")},
		"/rebuilds": {
			at("/held", "db", "order", "group", "shop.summary"), at("/dead-letters", "db", "order", "group", "shop.summary"),
			at("/dead-letters", "db", "order", "handler", "shop.summary/Paid"), at("/held", "db", "order", "group", "shop.summary", "topic", "shop.payment.events"),
		},
		at("/saga", "db", "order", "id", saga): {"/messages?q=o-1001", ann, at("/dead-letters", "db", "order", "hop", hop)},
		at("/relay/row", "db", "order", "id", row, "topic", "shop.none.commands"): {
			at("/messages", "q", row), "/messages?q=o-1", at("/relay/rows", "db", "order", "topic", "shop.none.commands"),
		},
		"/relay/rows?db=order": {at("/relay/row", "db", "order", "id", row, "topic", "shop.none.commands"), at("/relay/rows", "db", "order", "topic", "shop.none.commands")},
		"/relay":               {ann, at("/relay/rows", "db", "order", "topic", "shop.none.commands")},
		at("/relay/act", "db", "order", "do", "resume"): {ann},
		"/actions": {ann, "/actions?db=order", at("/dead-letter", "db", "order", "id", dead), at("/saga", "db", "order", "id", saga)},
		at("/dead-letters/list", "db", "order", "cause", facts[lettersFacts](d, "/dead-letters/list?db=order").Letters[0].Cause): {
			at("/dead-letters", "db", "order", "handler", handler),
		},
	} {
		page := d.html(address)
		for _, link := range links {
			require.Contains(t, page, fmt.Sprintf(`href="%s"`, html.EscapeString(link)), "%s has no link to %s", address, link)
			d.html(link)
		}
	}
}

// TestTheLinkToAnActionOnManyLeadsToItsRecordsAfterARestart opens the address of a progress page in a console that has restarted since.
func TestTheLinkToAnActionOnManyLeadsToItsRecordsAfterARestart(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.letters()
	cause := facts[causesFacts](d, "/dead-letters").Databases[0].Causes[0].ID
	w := d.post("/dead-letters/act", form("db", "order", "do", "redrive", "cause", cause, "reason", "ticket 7"))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	begun := decoded[Work](t, w.Body.Bytes())
	d.work(begun.ID)
	d.html(begun.Address())

	again, err := New(t.Context(), d.cfg)
	require.NoError(t, err)
	t.Cleanup(again.Close)
	again.limit = testLimit
	other := &desk{Stage: d.Stage, t: t, c: again}
	require.Equal(t, http.StatusNotFound, other.get(begun.Address()).Code, "a program gets an error")
	moved := other.page(begun.Address())
	require.Equal(t, http.StatusSeeOther, moved.Code)
	page := other.html(moved.Header().Get("Location"))
	require.Contains(t, page, "ticket 7")
	require.Contains(t, page, "3 × dead letter")
	server := httptest.NewServer(again)
	t.Cleanup(server.Close)
	next := other.open(server, url.QueryEscape(begun.Address()))
	require.Equal(t, "changed", next(), "an open page is read again, and follows the redirection")
}
