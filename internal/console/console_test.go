package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/console/stage"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

func TestPagesShowWhatIsThere(t *testing.T) {
	t.Parallel()
	d := newDesk(t, twice(t))
	ids := d.letters()
	d.Order("o-1001", saga.Completed)
	parked := d.parked("o-1002")

	overview := d.html("/")
	for _, text := range []string{"3 dead letters", "charge card: no answer in 5s", "1 saga is parked", "1 key is held", "completed", "empty"} {
		require.Contains(t, overview, text)
	}
	require.Contains(t, d.html("/sagas"), "order/o-1001")
	require.Contains(t, d.html("/sagas?status=parked"), "order/o-1002")
	require.NotContains(t, d.html("/sagas?status=parked"), "order/o-1001")
	page := d.html(at("/saga", "db", "order", "id", parked))
	for _, text := range []string{"exhausted", "payment_id", "Retry inventory", "the warehouse answers 503", "StepExhausted"} {
		require.Contains(t, page, text)
	}
	require.Contains(t, page, "Copy as test")
	written := facts[fixtureFacts](d, at("/saga/fixture", "db", "order", "id", parked))
	require.Empty(t, written.Why)
	require.Contains(t, written.Test, "f.ThenStatus(\"order/o-1002\", saga.Status(\"parked\"))")
	require.Contains(t, d.html(at("/saga/fixture", "db", "order", "id", parked)), "WhenPublished")
	require.Contains(t, d.html("/sagas?variable=payment_id&value=p-1"), "have not ended are shown")
	require.Contains(t, d.html("/dead-letters"), "charge card: no answer in 5s")
	require.Contains(t, d.html("/dead-letters"), "currency &#34;*&#34; is not known", "the common part of the errors of one cause")
	require.Contains(t, d.html(at("/dead-letter", "db", "order", "id", ids[0])), "EURO")
	require.Contains(t, d.html("/held"), "bank answered 503")
	require.Contains(t, d.html(at("/held/key", "db", "order", "place", "shop.billing.commands/0/9")), "2 messages")
	require.Contains(t, d.html(at("/messages", "q", "o-7")), "ChargeCard")
	require.Contains(t, d.html("/relay"), "order")
	require.Contains(t, d.html("/definitions"), "order")
	hash := facts[definitionsFacts](d, "/definitions").Databases[0].Definitions[0].Definition
	require.Contains(t, d.html(at("/definition", "db", "order", "hash", hash)), "no-timeout", "a finding of the verifier")
	_, err := d.Pool.Exec(t.Context(), `INSERT INTO troupe.saga_definitions (hash, saga, version, definition)
		SELECT 'older', saga, 0, regexp_replace(definition, '"version": ?[0-9]+', '"version": 77') FROM troupe.saga_definitions`)
	require.NoError(t, err)
	require.Contains(t, d.html(at("/definition", "db", "order", "hash", hash)), "Changes since older")
	diff := facts[definitionFacts](d, at("/definition", "db", "order", "hash", hash, "against", "older"))
	require.Len(t, diff.Changes, 1)
	require.Equal(t, "version", diff.Changes[0].Path)
	require.Contains(t, d.html(at("/definition", "db", "order", "hash", hash, "against", "older")), "<th scope=\"row\">version</th>")
}

// TestTheMessagesOfAKeyNameItsSagas checks that the page about a key has its sagas, with the reason of a parked one.
func TestTheMessagesOfAKeyNameItsSagas(t *testing.T) {
	t.Parallel()
	d := newDesk(t, twice(t))
	id := d.parked("o-1002")
	f := facts[messagesFacts](d, "/messages?q=o-1002")
	require.Len(t, f.Sagas, 1)
	require.Equal(t, []string{"order", id}, []string{f.Sagas[0].Database, f.Sagas[0].ID})
	page := d.html("/messages?q=o-1002")
	require.Contains(t, page, "Sagas of this key")
	require.Contains(t, page, "the warehouse answers 503")
	require.NotContains(t, d.html("/messages?q=o-1003"), "Sagas of this key")
}

func TestAnEmptyDatabaseSaysWhatWouldBeThere(t *testing.T) {
	t.Parallel()
	c, err := New(t.Context(), Config{Databases: []Database{{"shop", testkit.Database(t)}}, Log: testkit.Logger(t)})
	require.NoError(t, err)
	defer c.Close()
	d := &desk{t: t, c: c}
	for page, text := range map[string]string{
		"/": "Nothing. No dead letter is open", "/sagas": "There is no saga in shop yet", "/dead-letters": "No dead letter is open",
		"/held": "No key waits", "/expectations": "No event is expected", "/schedules": "There is no schedule", "/rebuilds": "No handler has been rebuilt", "/actions": "No operator has acted yet", "/definitions": "No saga is defined", "/messages": "Find the messages of an order",
		"/messages?q=o-1": "Nothing of o-1 was found", "/sagas?key=o-1": "No saga fits",
	} {
		require.Contains(t, d.html(page), text, page)
	}
	require.Contains(t, d.html("/"), "Read only")
}

func TestADatabaseThatIsDownIsSaidAndTheOthersAreShown(t *testing.T) {
	t.Parallel()
	d := newDesk(t, twice(t))
	d.Order("o-1001", saga.Completed)
	d.cfg.Databases[1].Pool.Close()
	o := facts[overviewFacts](d, "/")
	require.Empty(t, o.Databases[0].Error)
	require.Contains(t, o.Databases[1].Error, "closed pool")
	require.Equal(t, "now", o.Needs[0].Urgency)
	require.Contains(t, d.html("/"), "cannot be read")
	for _, page := range []string{"/dead-letters", "/held", "/expectations", "/schedules", "/rebuilds", "/actions", "/relay", "/definitions"} {
		require.Contains(t, d.html(page), "closed pool", page)
	}
	require.Equal(t, http.StatusBadGateway, d.get("/sagas?db=empty").Code)
}

func TestListsGoOnWhereTheyEnded(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, key := range []string{"o-1", "o-2", "o-3"} {
		d.Order(key, saga.Completed)
	}
	seen := make(map[string]bool)
	address := "/sagas?limit=2"
	for range 2 {
		f := facts[sagasFacts](d, address)
		for _, s := range f.Sagas {
			require.False(t, seen[s.ID])
			seen[s.ID] = true
		}
		address = at("/sagas", "limit", "2", "after", f.Next)
		if len(seen) == 3 {
			require.Empty(t, f.Next)
		}
	}
	require.Len(t, seen, 3)
}

// Held keys and dead letters are filtered by any of several topics, and the next page keeps the filter.
func TestFiltersHoldOnTheNextPage(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.letters()
	d.Hold(20, 0, stage.Letter{Key: "o-20", Type: "ChargeCard", Class: "transient", Error: "bank answered 503", Payload: "{}"})
	const topic, none = "shop.billing.commands", "shop.none.commands"
	require.Len(t, facts[heldFacts](d, at("/held", "topic", topic)).Databases[0].Held, 2)
	require.Empty(t, facts[heldFacts](d, at("/held", "topic", none)).Databases[0].Held)
	require.Len(t, facts[heldFacts](d, at("/held", "topic", none)+"&topic="+topic).Databases[0].Held, 2)
	require.Contains(t, d.html(at("/held", "topic", none)), "No key that waits fits")
	require.Len(t, facts[causesFacts](d, at("/dead-letters", "topic", none)+"&topic="+topic).Databases[0].Causes, 2)
	require.Equal(t, []string{none, topic}, groupFacts{Asked: url.Values{"topic": {none, topic}}}.Choice()["topic"], "the form asks the same")
	next := regexp.MustCompile(`rel="next" href="([^"]*)"`)
	for _, page := range []string{"/held", "/dead-letters"} {
		found := next.FindStringSubmatch(d.html(at(page, "topic", topic, "limit", "1")))
		require.Len(t, found, 2, page)
		address := page + strings.ReplaceAll(found[1], "&amp;", "&")
		require.Contains(t, address, "topic="+topic)
		require.NotContains(t, d.html(address), `rel="next"`, "it is the last one")
	}
	w := d.post("/held/key", form("db", "order", "do", "retry", "topic", topic))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.JSONEq(t, `{"retried": 2}`, w.Body.String())
	require.Equal(t, http.StatusBadRequest, d.post("/held/key", form("db", "order", "do", "retry")).Code, "all of it, unsaid")
}

func TestWrongAddressesSayWhatIsWanted(t *testing.T) {
	t.Parallel()
	d := newDesk(t, twice(t))
	for address, want := range map[string]int{
		"/nowhere": 404, "/sagas?status=dancing": 400, "/sagas?since=yesterday": 400, "/sagas?limit=0": 400, "/sagas?after=x": 400, "/sagas?db=x": 404,
		"/saga": 400, "/saga?db=order&id=order/o-0": 404, "/dead-letter?db=order&id=x": 400, "/dead-letters?class=odd": 400, "/dead-letters?hop=x": 400,
		"/dead-letter?db=order&id=0191f6a8-0000-4000-8000-000000000001": 404, "/held/key?db=order": 400, "/held/key?db=order&place=x": 400,
		"/held/key?db=order&place=a/0/1": 404, "/messages?q=o-1&since=x": 400, "/definition?db=order&hash=x": 404, "/definition?db=order": 400,
		"/work?id=x": 404, "/?window=1y": 400, "/dead-letters/act?db=order": 400, "/dead-letters/act?db=order&do=redrive": 400, "/live?page=/nowhere": 400,
		"/saga/act?db=order&id=order/o-0&do=dance": 400, "/static/nothing.js": 404,
		"/relay/rows?db=order&status=odd": 400, "/relay/rows?db=order&after=x": 400, "/relay/row?db=order": 400, "/relay/act?db=order": 400,
		"/relay/row?db=order&id=0191f6a8-0000-4000-8000-000000000001": 404, "/relay/act?db=order&do=retry": 400, "/relay/act?db=order&do=pause&table=a.b": 404,
	} {
		w := d.get(address)
		require.Equal(t, want, w.Code, "%s: %s", address, w.Body)
		require.Contains(t, w.Body.String(), `"error"`)
		page := d.page(address)
		require.Equal(t, want, page.Code, address)
		require.Contains(t, page.Body.String(), "</html>", address)
	}
}

func TestWithoutATokenNobodyActs(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(c *Config) { c.Token = "" })
	id := d.letters()[0]
	w := d.post("/dead-letter", form("db", "order", "id", id, "do", "discard", "reason", "ticket 1"))
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Equal(t, repair.Open, facts[letterFacts](d, at("/dead-letter", "db", "order", "id", id)).Letter.Status)
	require.NotContains(t, d.html(at("/dead-letter", "db", "order", "id", id)), `method="post"`)
}

func TestAWrongTokenDoesNothing(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	id := d.letters()[0]
	for _, header := range []string{"", "Bearer ", "Bearer wrong", "Bearer " + token + "x", "Basic " + token} {
		r := httptest.NewRequest(http.MethodPost, "/dead-letter", strings.NewReader(form("db", "order", "id", id, "do", "discard", "reason", "x", "actor", "eve").Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Authorization", header)
		require.Equal(t, http.StatusUnauthorized, d.serve(r).Code, header)
	}
	require.Equal(t, repair.Open, facts[letterFacts](d, at("/dead-letter", "db", "order", "id", id)).Letter.Status)
}

// signIn signs in as a browser does, and returns the cookie; nil if the token is wrong.
func (d *desk) signIn(t *testing.T, given string) *http.Cookie {
	r := httptest.NewRequest(http.MethodPost, "/sign-in", strings.NewReader(form("name", "ann", "token", given, "to", "/held").Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	w := d.serve(r)
	if given != token {
		require.Equal(t, http.StatusUnauthorized, w.Code)
		require.Empty(t, w.Result().Cookies())
		return nil
	}
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Equal(t, "/held", w.Header().Get("Location"))
	cookie := w.Result().Cookies()[0]
	require.True(t, cookie.HttpOnly)
	require.Equal(t, http.SameSiteLaxMode, cookie.SameSite)
	return cookie
}

func TestABrowserActsWithItsOwnFormOnly(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	id := d.letters()[0]
	require.Nil(t, d.signIn(t, "wrong"))
	cookie := d.signIn(t, token)

	r := httptest.NewRequest(http.MethodGet, at("/dead-letter", "db", "order", "id", id), nil)
	r.AddCookie(cookie)
	page := d.serve(r).Body.String()
	require.Contains(t, page, "ann")
	field := regexp.MustCompile(`name="form" value="([^"]+)"`).FindStringSubmatch(page)
	require.NotNil(t, field)

	send := func(form url.Values, site string, with *http.Cookie) int {
		r := httptest.NewRequest(http.MethodPost, "/dead-letter", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if r.Header.Set("Sec-Fetch-Site", site); with != nil {
			r.AddCookie(with)
		}
		return d.serve(r).Code
	}
	discard := form("db", "order", "id", id, "do", "discard", "reason", "ticket 1")
	require.Equal(t, http.StatusForbidden, send(discard, "same-origin", cookie), "without the form's field")
	discard.Set("form", field[1])
	require.Equal(t, http.StatusForbidden, send(discard, "cross-site", cookie))
	require.Equal(t, http.StatusUnauthorized, send(discard, "same-origin", nil))
	forged := *cookie
	forged.Value = cookie.Value[1:]
	require.Equal(t, http.StatusUnauthorized, send(discard, "same-origin", &forged), "another cookie")
	require.Equal(t, repair.Open, facts[letterFacts](d, at("/dead-letter", "db", "order", "id", id)).Letter.Status)

	require.Equal(t, http.StatusSeeOther, send(discard, "same-origin", cookie))
	l := facts[letterFacts](d, at("/dead-letter", "db", "order", "id", id)).Letter
	require.Equal(t, repair.Discarded, l.Status)
	require.Equal(t, "ann", l.History[0].Actor)
	require.Equal(t, "ticket 1", l.History[0].Reason)
}

func TestAPrivateConsoleShowsNothingToStrangers(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(c *Config) { c.Private = true })
	d.letters()
	for _, p := range pages {
		require.Equal(t, http.StatusUnauthorized, d.get(p.path).Code, p.path)
		require.Equal(t, http.StatusSeeOther, d.page(p.path).Code, p.path)
	}
	require.Equal(t, http.StatusUnauthorized, d.get("/live?page=/").Code)
	r := httptest.NewRequest(http.MethodGet, "/held", nil)
	r.AddCookie(d.signIn(t, token))
	require.Contains(t, d.serve(r).Body.String(), "bank answered 503")
}

func TestEveryAnswerForbidsWhatPagesDoNotNeed(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(c *Config) { c.Hosts = []string{"console.example"} })
	for _, address := range []string{"/", "/nowhere", "/static/console.js", "/openapi.json", "/sign-in", "/saga"} {
		r := httptest.NewRequest(http.MethodGet, address, nil)
		r.Host = "console.example:8090"
		h := d.serve(r).Header()
		require.Equal(t, policy, h.Get("Content-Security-Policy"), address)
		require.NotContains(t, h.Get("Content-Security-Policy"), "unsafe")
		require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"), address)
	}
	for host, want := range map[string]int{
		"console.example": 200, "127.0.0.1:8090": 200, "[::1]:8090": 200, "evil.example": 421, "192.0.2.1": 421,
	} {
		r := httptest.NewRequest(http.MethodGet, "/relay", nil)
		r.Host = host
		require.Equal(t, want, d.serve(r).Code, host)
	}
}

func TestAReturnLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for to, want := range map[string]string{
		"/held?db=order": "/held?db=order", "https://evil.example/": "/", "//evil.example/held": "/", "/\\evil.example": "/",
		"//evil.example/": "/", "///evil.example/": "/", "/\t/evil.example/": "/", "/\r\n/held": "/", "http:/held": "/", "/%2fevil.example/": "/",
		"/held#/x": "/held#/x", "//evil.example:80/": "/", "//ann@evil.example/": "/", "/nowhere": "/", "": "/", "///": "/", "///?to=/held": "/", "///#/held": "/",
	} {
		require.Equal(t, want, d.c.back(to), to)
	}
}

func TestItCanBeMountedBelowAPath(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(c *Config) { c.Path = "/console" })
	id := d.parked("o-1002")
	page := d.html("/console" + at("/saga", "db", "order", "id", id))
	for _, found := range regexp.MustCompile(`(?:href|src|action|data-live)="(/[^"]*)"`).FindAllStringSubmatch(page, -1) {
		require.True(t, strings.HasPrefix(found[1], "/console/"), found[1])
	}
	require.Equal(t, "/console/", d.page("/console").Header().Get("Location"))
	require.Equal(t, http.StatusNotFound, d.page("/sagas").Code)
}

func TestConfigsThatCannotBeMeant(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	one := []Database{{"a", pool}}
	for want, cfg := range map[string]Config{
		"no databases": {}, "a name has letters": {Databases: []Database{{"a b", pool}}}, "without a pool": {Databases: []Database{{Name: "a"}}},
		"two databases": {Databases: []Database{{"a", pool}, {"a", pool}}}, "at least 16": {Databases: one, Token: "short"},
		"no request could be authorized": {Databases: one, Private: true}, "want one like /console": {Databases: one, Path: "console"},
		"without a flow": {Databases: one, Brokers: []string{"localhost:9092"}},
	} {
		_, err := New(t.Context(), cfg)
		require.ErrorContains(t, err, want)
	}
}
