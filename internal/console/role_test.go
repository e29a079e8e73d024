package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/console/stage"
	"github.com/troupe-go/troupe/testkit"
)

// tokenOf returns the token of a user of withUsers.
func tokenOf(name string) string { return "the token of the user " + name }

// withUsers gives the console a user for each role on all databases, one without a role on the database order, and no shared token.
func withUsers(c *Config) {
	c.Token = ""
	c.Access = &Access{Users: []User{
		{Name: "viewer", Token: tokenOf("viewer"), Roles: Roles{AllDatabases: Viewer}},
		{Name: "operator", Token: tokenOf("operator"), Roles: Roles{AllDatabases: Operator}},
		{Name: "admin", Token: tokenOf("admin"), Roles: Roles{AllDatabases: Admin}},
		{Name: "elsewhere", Token: tokenOf("elsewhere"), Roles: Roles{"empty": Admin}},
		{Name: "mixed", Token: tokenOf("mixed"), Roles: Roles{AllDatabases: Viewer, "empty": Admin}},
	}}
}

// roled returns a desk over a database with data for each page, and an empty one, with the users of withUsers.
func roled(t testing.TB) *desk {
	d := newDesk(t, twice(t), withUsers, func(c *Config) {
		s := stage.New(t)
		s.Watched()
		c.Watch = asViewer(t, s.Pool)
	})
	return d
}

// places returns an address with its parameters for each page, and a valid form for each action.
func (d *desk) places(t *testing.T) (gets map[string]string, posts map[string]url.Values) {
	letters, parked, row := d.letters(), d.parked("o-1002"), d.FailedRow("shop.none.commands", "parked", "no such topic")
	d.Leads()
	to := d.Parcels()
	admin := d.as(tokenOf("admin"))
	from := facts[definitionsFacts](admin, "/definitions").Databases[0].Definitions[1].Definition
	cause := facts[lettersFacts](admin, "/dead-letters/list?db=order").Letters[0].Cause
	begun := &Work{Do: "redrive", kind: redriveWork, Database: "order"}
	require.NoError(t, d.c.works.begin(begun, func(ctx context.Context, _ func(func(*Work))) error { <-ctx.Done(); return ctx.Err() }))
	const place, topic = "shop.billing.commands/0/9", "shop.none.commands"
	gets = map[string]string{
		"/": "/", "/sagas": "/sagas?db=order", "/saga": at("/saga", "db", "order", "id", parked), "/flows": "/flows", "/flow": "/flow?id=w-2",
		"/saga/act":    at("/saga/act", "db", "order", "id", parked, "do", "abandon"),
		"/sagas/retry": at("/sagas/retry", "db", "order", "saga", "order"),
		"/questions":   "/questions?db=order", "/saga/answer": at("/saga/answer", "db", "order", "id", d.Loan("l-1"), "step", "approval"),
		"/saga/fixture": at("/saga/fixture", "db", "order", "id", parked), "/dead-letters": "/dead-letters?db=order",
		"/dead-letters/list": at("/dead-letters/list", "db", "order", "cause", cause),
		"/dead-letters/act":  at("/dead-letters/act", "db", "order", "do", "discard", "cause", cause),
		"/dead-letter":       at("/dead-letter", "db", "order", "id", letters[0]), "/work": at("/work", "id", begun.ID), "/held": "/held?db=order", "/actions": "/actions?db=order", "/expectations": "/expectations?db=order", "/schedules": "/schedules?db=order", "/rebuilds": "/rebuilds?db=order",
		"/held/key": at("/held/key", "db", "order", "place", place), "/messages": "/messages?q=o-1002", "/relay": "/relay",
		"/relay/rows": "/relay/rows?db=order", "/relay/row": at("/relay/row", "db", "order", "id", row),
		"/relay/act": at("/relay/act", "db", "order", "do", "discard", "topic", topic), "/definitions": "/definitions",
		"/definition": at("/definition", "db", "order", "hash", from), "/definition/start": at("/definition/start", "db", "order", "hash", from, "key", "o-77"),
		"/definition/move": at("/definition/move", "db", "order", "from", from, "to", to),
	}
	posts = make(map[string]url.Values)
	for _, p := range pages {
		for _, do := range p.actions() {
			q, err := url.Parse(gets[p.path])
			require.NoError(t, err)
			f := q.Query()
			f.Set("do", do)
			f.Set("reason", "ticket 1")
			switch p.path {
			case "/saga/act":
				f.Set("step", "inventory")
				f.Set("happened", "no")
			case "/saga/answer":
				f.Set("event", "LoanApproved")
				f.Set("values", `{"cents": 5}`)
			case "/relay/act", "/sagas/retry":
				f.Set("count", "1")
			case "/dead-letters/act":
				f.Set("count", "3")
			case "/dead-letter":
				f.Set("payload", "{}")
			}
			posts[p.path+" "+do] = f
		}
	}
	return gets, posts
}

// records returns the number of records of all audit tables, and of sagas, so that a change is seen.
func (d *desk) records() (n int) {
	require.NoError(d.t, d.Pool.QueryRow(d.t.Context(), `SELECT (SELECT count(*) FROM troupe.repairs) + (SELECT count(*) FROM troupe.saga_events)
		+ (SELECT count(*) FROM troupe.outbox_repairs) + (SELECT count(*) FROM troupe.relay_pauses) + (SELECT count(*) FROM troupe.sagas)`).Scan(&n))
	return n
}

var doField = regexp.MustCompile(`<form[^>]*method="post" action="([^"]+)"|name="do" value="([^"]*)"`)

// forms returns the actions of the forms of a page, as page and action.
func forms(page string) (all []string) {
	action := ""
	for _, found := range doField.FindAllStringSubmatch(page, -1) {
		if found[1] != "" {
			action = found[1]
		} else if action != "" {
			all = append(all, action+" "+found[2])
		}
	}
	return all
}

// follows opens the stream of a live page, and returns its status.
func (d *desk) follows(server *httptest.Server, page string) int {
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, server.URL+"/live?"+url.Values{"page": {page}}.Encode(), nil)
	require.NoError(d.t, err)
	r.Header.Set("Authorization", "Bearer "+d.token)
	live, err := server.Client().Do(r)
	require.NoError(d.t, err)
	require.NoError(d.t, live.Body.Close())
	return live.StatusCode
}

// Every page and every action of the table of pages is answered for a role that has it, and refused for the others, without a
// record; a page has the forms of the role's actions only.
func TestEachPageAndActionAsksForItsRole(t *testing.T) {
	t.Parallel()
	d := roled(t)
	gets, posts := d.places(t)
	before := d.records()
	server := httptest.NewServer(d.c)
	t.Cleanup(server.Close)
	t.Cleanup(d.c.Close) // first: it ends live pages
	for _, one := range []struct {
		user string
		role Role
	}{{"viewer", Viewer}, {"operator", Operator}, {"admin", Admin}} {
		as := d.as(tokenOf(one.user))
		for _, p := range pages {
			require.Contains(t, gets, p.path)
			want := http.StatusForbidden
			if one.role >= p.role() {
				want = http.StatusOK
			}
			w := as.get(gets[p.path])
			require.Equal(t, want, w.Code, "%s reads %s: %s", one.user, gets[p.path], w.Body)
			html := as.browse(gets[p.path], nil, "Authorization", "Bearer "+as.token)
			require.Equal(t, want, html.Code, "%s reads %s", one.user, gets[p.path])
			for _, form := range forms(html.Body.String()) {
				path, do, _ := strings.Cut(form, " ")
				needs, is := d.c.pages[path].roleOf(do)
				require.True(t, is && one.role >= needs, "%s sees the form of %s", one.user, form)
			}
			if p.live {
				status := as.follows(server, gets[p.path])
				require.Equal(t, want, status, "%s follows %s", one.user, p.path)
			}
		}
		require.Equal(t, one.role >= Operator, as.get(strings.Replace(gets["/dead-letter"], "?", "/payload?", 1)).Code == http.StatusOK)
		require.Equal(t, one.role >= Operator, as.get("/sagas?db=order&variable=payment_id&value=p-1").Code == http.StatusOK)
		for action, form := range posts {
			path, do, _ := strings.Cut(action, " ")
			if needs, _ := d.c.pages[path].roleOf(do); one.role < needs {
				form.Set("actor", one.user)
				w := as.post(path, form)
				require.Equal(t, http.StatusForbidden, w.Code, "%s does %s: %s", one.user, action, w.Body)
			}
		}
	}
	require.Equal(t, before, d.records(), "a refused action left no record")

	seen := make(map[string]bool)
	admin := d.as(tokenOf("admin"))
	for _, address := range gets {
		for _, form := range forms(admin.browse(address, nil, "Authorization", "Bearer "+admin.token).Body.String()) {
			seen[form] = true
		}
	}
	for _, one := range []string{"/dead-letter edit", "/dead-letter discard", "/dead-letters/act discard", "/held/key dead-letter", "/relay/row discard", "/relay/act discard",
		"/saga/act abandon", "/definition/start start", "/definition/move migrate", "/work stop", "/sagas/retry retry", "/held/key retry", "/relay/row retry", "/dead-letter redrive"} {
		require.True(t, seen[one], one)
	}
	for _, user := range []struct {
		name string
		role Role
	}{{"operator", Operator}, {"admin", Admin}} {
		as := d.as(tokenOf(user.name))
		for action, form := range posts {
			path, do, _ := strings.Cut(action, " ")
			if needs, _ := d.c.pages[path].roleOf(do); user.role >= needs {
				form.Set("actor", user.name)
				w := as.post(path, form)
				require.NotContains(t, []int{http.StatusForbidden, http.StatusUnauthorized}, w.Code, "%s does %s: %s", user.name, action, w.Body)
			}
		}
	}
	var others int
	require.NoError(t, d.Pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.repairs WHERE actor NOT IN ('operator', 'admin')").Scan(&others))
	require.Zero(t, others)
	require.Greater(t, d.records(), before)
}

// A user without a role on a database does not see it, and a role on one database is no role on another.
func TestARoleIsOfItsDatabase(t *testing.T) {
	t.Parallel()
	d := roled(t)
	gets, posts := d.places(t)
	before := d.records()
	as := d.as(tokenOf("elsewhere"))
	for _, p := range pages {
		w := as.get(gets[p.path])
		switch {
		case p.flow:
			require.Equal(t, http.StatusForbidden, w.Code, p.path)
		case strings.Contains(gets[p.path], "db=order"), p.path == "/work":
			require.Equal(t, http.StatusNotFound, w.Code, "%s: %s", p.path, w.Body)
		default:
			require.Equal(t, http.StatusOK, w.Code, "%s: %s", p.path, w.Body)
		}
		require.NotContains(t, w.Body.String(), "order/o-1002", p.path)
	}
	for action, form := range posts {
		path, _, _ := strings.Cut(action, " ")
		form.Set("actor", "elsewhere")
		require.Equal(t, http.StatusNotFound, as.post(path, form).Code, action)
		form.Set("actor", "mixed")
		require.Equal(t, http.StatusForbidden, d.as(tokenOf("mixed")).post(path, form).Code, action)
	}
	require.Equal(t, before, d.records())
	require.Len(t, facts[causesFacts](as, "/dead-letters").Databases, 1)
	require.Len(t, facts[causesFacts](d.as(tokenOf("mixed")), "/dead-letters").Databases, 2)
	require.Empty(t, facts[causesFacts](as, "/dead-letters").Works, "a work on order is not shown")
	require.Len(t, facts[causesFacts](d.as(tokenOf("viewer")), "/dead-letters").Works, 1)
}

// The actor of a record is the user of the token; a request cannot give another one, neither by a field nor at the sign-in.
func TestTheActorIsTheAuthenticatedUser(t *testing.T) {
	t.Parallel()
	d := roled(t)
	id := d.letters()[0]
	as := d.as(tokenOf("admin"))
	discard := form("db", "order", "id", id, "do", "discard", "reason", "ticket 1", "actor", "eve")
	require.Equal(t, http.StatusForbidden, as.post("/dead-letter", discard).Code)

	w := d.submit("/sign-in", form("token", tokenOf("admin"), "name", "eve", "to", "/dead-letter?db=order&id="+id), nil)
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Equal(t, "/dead-letter?db=order&id="+id, w.Header().Get("Location"))
	cookie := w.Result().Cookies()[0]
	page := d.browse(at("/dead-letter", "db", "order", "id", id), cookie).Body.String()
	require.NotContains(t, page, "eve")
	discard.Set("form", formField.FindStringSubmatch(page)[1])
	require.Equal(t, http.StatusForbidden, d.submit("/dead-letter", discard, cookie).Code)
	discard.Del("actor")
	require.Equal(t, http.StatusSeeOther, d.submit("/dead-letter", discard, cookie).Code)
	l := facts[letterFacts](as, at("/dead-letter", "db", "order", "id", id)).Letter
	require.Equal(t, repair.Discarded, l.Status)
	require.Equal(t, "admin", l.History[0].Actor)
	require.NotContains(t, d.browse("/sign-in", nil).Body.String(), `name="name"`, "the form has no field for a name")
}

func TestAConsoleWithUsersShowsNothingWithoutOne(t *testing.T) {
	t.Parallel()
	d := newDesk(t, withUsers, func(c *Config) { c.Access.Users = c.Access.Users[:3] })
	for _, p := range pages {
		require.Equal(t, http.StatusUnauthorized, d.get(p.path).Code, p.path)
	}
	require.Equal(t, http.StatusUnauthorized, d.as("no token of any user").get("/relay").Code)
	r := httptest.NewRequest(http.MethodGet, "/relay", nil)
	r.Header.Set("X-Forwarded-User", "admin")
	require.Equal(t, http.StatusUnauthorized, d.serveJSON(r).Code, "there is no proxy")
}

func (d *desk) serveJSON(r *http.Request) *httptest.ResponseRecorder {
	r.Header.Set("Accept", "application/json")
	return d.serve(r)
}

func TestAccessThatCannotBeMeantIsRefused(t *testing.T) {
	t.Parallel()
	one := []Database{{"a", testkit.Database(t)}}
	user := User{Name: "ann", Token: tokenOf("ann"), Roles: Roles{"a": Viewer}}
	change := func(c func(*User)) []User { u := user; c(&u); return []User{u} }
	for want, access := range map[string]Access{
		"no request could read": {}, "ann has no token": {Users: change(func(u *User) { u.Token = "" })},
		"at least 16":                    {Users: change(func(u *User) { u.Token = "short" })},
		"has no role":                    {Users: change(func(u *User) { u.Roles = nil })},
		"no database b":                  {Users: change(func(u *User) { u.Roles = Roles{"b": Admin} })},
		"want the role":                  {Users: change(func(u *User) { u.Roles = Roles{"a": 7} })},
		"two users are called":           {Users: []User{user, user}},
		"of another user":                {Users: append(change(func(u *User) { u.Name = "bob" }), user)},
		"a name of one line":             {Users: change(func(u *User) { u.Name = "ann\nbob" })},
		"groups without a proxy":         {Users: []User{user}, Groups: map[string]Roles{"sre": {"a": Admin}}},
		"without the name of its header": {Proxy: &Proxy{Secret: tokenOf("proxy")}},
		"could name itself":              {Proxy: &Proxy{User: "X-User"}},
		"secret of 5 bytes":              {Proxy: &Proxy{User: "X-User", Secret: "short"}},
		"header for groups":              {Proxy: &Proxy{User: "X-User", Secret: tokenOf("proxy")}, Groups: map[string]Roles{"sre": {"a": Admin}}},
	} {
		_, err := New(t.Context(), Config{Databases: one, Access: &access})
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), tokenOf("ann"))
	}
	_, err := New(t.Context(), Config{Databases: one, Token: token, Access: &Access{Users: []User{user}}})
	require.ErrorContains(t, err, "want one of both")
}

// Variables are for admins, also as the result of a step that an operator resolves.
func TestAnOperatorCannotSetVariablesByResolvingAStep(t *testing.T) {
	t.Parallel()
	d := newDesk(t, twice(t), withUsers)
	parked := d.parked("o-1002")
	before := d.records()
	as := d.as(tokenOf("operator"))
	resolve := form("db", "order", "id", parked, "do", "resolve", "happened", "yes", "step", "inventory", "result", `{"amount_cents": 99999999}`,
		"reason", "ticket 1", "actor", "operator")
	w := as.post("/saga/act", resolve)
	require.Equal(t, http.StatusForbidden, w.Code, w.Body)
	require.Contains(t, w.Body.String(), "result: needs the role admin on order")
	require.Equal(t, before, d.records())

	preview := at("/saga/act", "db", "order", "id", parked, "do", "resolve", "happened", "yes", "step", "inventory")
	field := func(user string) bool {
		page := d.browse(preview, nil, "Authorization", "Bearer "+tokenOf(user))
		require.Equal(t, http.StatusOK, page.Code)
		require.Contains(t, page.Body.String(), `name="reason"`)
		return strings.Contains(page.Body.String(), `name="result"`)
	}
	require.False(t, field("operator"))
	require.True(t, field("admin"))
	require.Equal(t, http.StatusForbidden, as.get(preview+"&result="+url.QueryEscape(resolve.Get("result"))).Code, "the form would lose the result")

	resolve.Del("result")
	require.Equal(t, http.StatusOK, as.post("/saga/act", resolve).Code)
}
