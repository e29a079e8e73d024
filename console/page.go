package console

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	relays "github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/flow/watch"
	"github.com/troupe-go/troupe/internal/plain"
	"github.com/troupe-go/troupe/saga/coordinator"
)

// A page is one address. Its facts are its JSON, and the data of its template.
type page struct {
	path     string
	title    string
	template string
	nav      string // the entry of the navigation that it belongs to
	live     bool   // the browser reloads it when its facts change
	payloads bool   // its facts hold whole payloads
	takes    string // the names of the parameters of its address, separated by blanks
	does     string // the fields of its form, other than actor and reason
	read     func(context.Context, *ask) (any, error)
	actions  string // the values that its form's do may have; others are refused
	// act handles a POST: it returns the JSON response, and the address that a browser is redirected to.
	act func(context.Context, *ask) (done any, next string, err error)
}

// pages has every page.
var pages = []page{
	{
		path: "/", title: "Overview", template: "overview", nav: "/", live: true, read: readOverview,
		takes: "window",
	},
	{
		path: "/sagas", title: "Sagas", template: "sagas", nav: "/sagas", live: true, read: readSagas,
		takes: "db saga status key step definition variable value since before still oldest limit after",
	},
	{
		path: "/saga", title: "Saga", template: "saga", nav: "/sagas", live: true, payloads: true, read: readSaga,
		takes: "db id",
	},
	{
		path: "/saga/act", title: "Saga", template: "saga-act", nav: "/sagas", read: readSagaAct,
		takes: "db id do step happened result",
		act:   actOnSaga, does: "db id do step happened result",
		actions: "retry skip resolve compensate resume set abandon",
	},
	{
		path: "/saga/fixture", title: "Saga", template: "saga-fixture", nav: "/sagas", read: readFixture,
		takes: "db id",
	},
	{
		path: "/flows", title: "Flows", template: "flows", nav: "/flows", live: true, read: readFlows,
		takes: "flow status found key since before limit after",
	},
	{
		path: "/flow", title: "Flow", template: "flow", nav: "/flows", live: true, read: readFlow,
		takes: "flow id",
	},
	{
		path: "/dead-letters", title: "Dead letters", template: "dead-letters", nav: "/dead-letters", live: true, read: readCauses,
		takes: "db cause group class handler type key topic hop since before status limit after",
	},
	{
		path: "/dead-letters/list", title: "Dead letters", template: "dead-letters-list", nav: "/dead-letters", live: true, read: readLetters,
		takes: "db cause group class handler type key topic hop since before status limit after",
	},
	{
		path: "/dead-letters/act", title: "Dead letters", template: "dead-letters-act", nav: "/dead-letters", read: readGroup,
		takes: "db do cause group class handler type key topic hop since before all",
		act:   actOnGroup, does: "db do cause group class handler type key topic hop since before all rate",
		actions: "redrive discard",
	},
	{
		path: "/dead-letter", title: "Dead letter", template: "dead-letter", nav: "/dead-letters", live: true, payloads: true, read: readLetter,
		takes: "db id",
		act:   actOnLetter, does: "db id do payload",
		actions: "edit redrive discard",
	},
	{
		path: "/work", title: "Work", template: "work", nav: "/dead-letters", live: true, read: readWork,
		takes: "id",
		act:   actOnWork, does: "id do",
		actions: "stop",
	},
	{
		path: "/held", title: "Held keys", template: "held", nav: "/held", live: true, read: readHeld,
		takes: "db group class key topic limit after",
	},
	{
		path: "/held/key", title: "Held key", template: "held-key", nav: "/held", live: true, read: readHeldKey,
		takes: "db place group",
		act:   actOnHeld, does: "db place group class key topic all do hop",
		actions: "retry release",
	},
	{
		path: "/messages", title: "Messages", template: "messages", nav: "/messages", payloads: true, read: readMessages,
		takes: "q since scan-all",
	},
	{
		path: "/relay", title: "Relay", template: "relay", nav: "/relay", live: true, read: readRelay,
	},
	{
		path: "/relay/rows", title: "Rows in trouble", template: "relay-rows", nav: "/relay", live: true, read: readTrouble,
		takes: "db table status topic limit after",
	},
	{
		path: "/relay/row", title: "Row in trouble", template: "relay-row", nav: "/relay", live: true, payloads: true, read: readTroubleRow,
		takes: "db table id",
		act:   actOnTroubleRow, does: "db table id do",
		actions: "retry discard",
	},
	{
		path: "/relay/act", title: "Relay", template: "relay-act", nav: "/relay", read: readRelayAct,
		takes: "db table topic do",
		act:   actOnRelay, does: "db table topic do",
		actions: "retry discard pause resume",
	},
	{
		path: "/definitions", title: "Definitions", template: "definitions", nav: "/definitions", read: readDefinitions,
	},
	{
		path: "/definition", title: "Definition", template: "definition", nav: "/definitions", read: readDefinition,
		takes: "db hash against",
	},
	{
		path: "/definition/start", title: "Start a saga", template: "definition-start", nav: "/definitions", read: readStart,
		takes: "db hash key input hop group avro",
		act:   actOnStart, does: "db hash key input hop group avro do",
		actions: "start",
	},
	{
		path: "/definition/move", title: "Move sagas", template: "definition-move", nav: "/definitions", read: readMove,
		takes: "db from to",
		act:   actOnMove, does: "db from to do",
		actions: "migrate",
	},
}

// An ask is a request for a page, as far as pages use it.
type ask struct {
	*Console
	page   *page
	values url.Values // of the address, or of the form
	by     repair.By  // the user; without an actor the request may not act
}

func (a *ask) get(name string) string { return strings.TrimSpace(a.values.Get(name)) }

// all returns the values of a parameter that may be repeated.
func (a *ask) all(name string) (all []string) {
	for _, value := range a.values[name] {
		if value = strings.TrimSpace(value); value != "" {
			all = append(all, value)
		}
	}
	return all
}

func (a *ask) database() (*source, error) { return a.source(a.get("db")) }

const perPage = 50

func (a *ask) limit() (int, error) {
	text := a.get("limit")
	if text == "" {
		return perPage, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1000 {
		return 0, refuse(http.StatusBadRequest, "limit %q: want 1 to 1000", text)
	}
	return n, nil
}

// number returns a count. "": 0.
func (a *ask) number(name string) (int64, error) {
	text := a.get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, refuse(http.StatusBadRequest, "%s %q: want a whole number", name, text)
	}
	return n, nil
}

// moment returns a time: RFC 3339, or a duration before now. "": the zero time.
func (a *ask) moment(name string) (time.Time, error) {
	text := a.get(name)
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at, nil
	}
	ago, err := time.ParseDuration(text)
	if err != nil || ago <= 0 {
		return time.Time{}, refuse(http.StatusBadRequest, "%s %q: want a time such as 2026-01-31T12:00:00Z, or how long ago, such as 2h30m", name, text)
	}
	return time.Now().Add(-ago), nil
}

// refusal is an error with an HTTP status.
type refusal struct {
	status int
	text   string
}

func (r refusal) Error() string { return r.text }

func refuse(status int, format string, args ...any) error {
	return refusal{status, fmt.Sprintf(format, args...)}
}

// checkText returns an error, with the field's name, for values that Postgres does not accept as text.
func checkText(values url.Values) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		for _, value := range values[name] {
			if strings.ContainsRune(value, 0) || !utf8.ValidString(value) {
				return refuse(http.StatusBadRequest, "%s: want text in UTF-8 without the character NUL", plain.Line(name, 100))
			}
		}
	}
	return nil
}

// statusOf returns the HTTP status of an error.
func statusOf(err error) int {
	var r refusal
	is := func(any ...error) bool {
		for _, one := range any {
			if errors.Is(err, one) {
				return true
			}
		}
		return false
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &r):
		return r.status
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge
	case is(repair.ErrNotFound, coordinator.ErrNotFound, relays.ErrNoTrouble, relays.ErrNoRelay, watch.ErrNone):
		return http.StatusNotFound
	case is(repair.ErrNotOpen, repair.ErrBusy, repair.ErrGone, repair.ErrBehind, repair.ErrUnsendable, coordinator.ErrRefused,
		relays.ErrNotParked, relays.ErrPaused, relays.ErrNotPaused):
		return http.StatusConflict
	case is(repair.ErrPayload):
		return http.StatusUnprocessableEntity
	case is(context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	}
	return http.StatusBadGateway
}

// view is the data of the layout template.
type view struct {
	Title   string
	Nav     string
	Facts   any
	State   string // of the facts; "" if the page is not live
	Here    string // its address
	Who     string // "": not signed in
	CanAct  bool   // there is a token
	Form    string // the value that a form must have
	Path    string
	Refused bool
}

// titled facts return the title of their page.
type titled interface{ title() string }

func (c *Console) show(w http.ResponseWriter, r *http.Request, p *page) {
	u, ok := c.enter(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), c.limit)
	defer cancel()
	a, err := c.answerOf(ctx, r, p, u)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	a.writeTo(w)
}

// answerOf reads the facts of a page and renders them. It holds the turn of a page with payloads until then, and not while a client
// receives the answer.
func (c *Console) answerOf(ctx context.Context, r *http.Request, p *page, u user) (*rendered, error) {
	values := r.URL.Query()
	if err := checkText(values); err != nil {
		return nil, err
	}
	release, err := c.reserve(ctx, p)
	if err != nil {
		return nil, err
	}
	defer release()
	facts, err := p.read(ctx, &ask{c, p, values, repair.By{Actor: u.name}})
	status := http.StatusOK
	var told retold
	switch {
	case errors.As(err, &told) && !wantsJSON(r):
		facts, status = told.facts, statusOf(err)
	case err != nil:
		return nil, err
	}
	if wantsJSON(r) {
		return encode(status, facts), nil
	}
	v := viewOf(p, facts)
	v.Who, v.Form = u.name, u.form
	if p.live {
		v.State = stateOf(facts)
	}
	return c.render(r, status, p.template, v), nil
}

func viewOf(p *page, facts any) view {
	v := view{Title: p.title, Nav: p.nav, Facts: facts}
	if t, ok := facts.(titled); ok {
		v.Title = t.title()
	}
	if t, ok := facts.(interface{ nav() string }); ok { // of facts that belong to more than one entry
		v.Nav = t.nav()
	}
	return v
}

// enter returns the signed-in user. It answers the request, and returns false, if the user may not read.
func (c *Console) enter(w http.ResponseWriter, r *http.Request) (u user, ok bool) {
	u = c.userOf(r)
	if c.cfg.Private && u.name == "" {
		if wantsJSON(r) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			c.fail(w, r, refuse(http.StatusUnauthorized, "want the header Authorization: Bearer TOKEN"))
		} else {
			http.Redirect(w, r, c.cfg.Path+"/sign-in?to="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
		}
		return user{}, false
	}
	return u, true
}

func (c *Console) fail(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	if r.Context().Err() != nil {
		return // the client has gone
	}
	if status >= 500 {
		c.cfg.Log.Warn().Err(err).Str("path", r.URL.Path).Msg("console")
	}
	if wantsJSON(r) {
		answer(w, status, map[string]string{"error": err.Error()})
		return
	}
	u := c.userOf(r)
	c.draw(w, r, status, "error", view{Title: http.StatusText(status), Facts: err.Error(), Who: u.name, Form: u.form, Refused: true})
}

func (c *Console) draw(w http.ResponseWriter, r *http.Request, status int, name string, v view) {
	c.render(r, status, name, v).writeTo(w)
}

// rendered is an answer that only has to be sent.
type rendered struct {
	status int
	media  string
	text   bytes.Buffer
}

func (a *rendered) writeTo(w http.ResponseWriter) {
	w.Header().Set("Content-Type", a.media)
	w.WriteHeader(a.status)
	_, _ = a.text.WriteTo(w) // the client may be gone
}

func (c *Console) render(r *http.Request, status int, name string, v view) *rendered {
	v.Path, v.Here, v.CanAct = c.cfg.Path, c.cfg.Path+cmp.Or(r.URL.RequestURI(), "/"), c.cfg.Token != ""
	a := &rendered{status: status, media: "text/html; charset=utf-8"}
	if err := c.templates[name].ExecuteTemplate(&a.text, "layout", v); err != nil {
		c.cfg.Log.Error().Err(err).Str("template", name).Msg("console")
		a = &rendered{status: http.StatusInternalServerError, media: "text/plain; charset=utf-8"}
		a.text.WriteString("the page cannot be rendered; its JSON can be had with Accept: application/json\n")
	}
	return a
}

// wantsJSON reports whether the client is a program: browsers accept text/html.
func wantsJSON(r *http.Request) bool {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	return strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html")
}

func answer(w http.ResponseWriter, status int, facts any) { encode(status, facts).writeTo(w) }

func encode(status int, facts any) *rendered {
	a := &rendered{status: status, media: "application/json"}
	a.text.WriteString(pretty(facts) + "\n")
	return a
}

// stateOf returns a digest that changes with the facts.
func stateOf(facts any) string {
	if f, ok := facts.(interface{ still() any }); ok { // without facts that change while nothing happens
		facts = f.still()
	}
	text, _ := json.Marshal(facts)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
