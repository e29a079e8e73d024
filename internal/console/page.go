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
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/troupe-go/troupe/internal/jsontext"
)

// view is the data of the layout template.
type view struct {
	Title   string
	Nav     string
	Facts   any
	State   string // of the facts; "" if the page is not live
	Here    string // its address
	Who     string // "": not signed in
	SignOut bool   // the user has a session
	CanAct  bool   // there is a token
	Form    string // the value that a form must have
	Path    string
	Refused bool
	At      time.Time // of the facts
	Finds   bool      // the user may look for messages

	user  user
	pages map[string]*page
}

// of sets the user of the view.
func (v *view) of(u user) {
	v.Who, v.Form, v.SignOut, v.user = u.name, u.form, !u.proxied && u.name != "", u
}

// Can reports whether the user may do an action of a page: the page has its form.
func (v view) Can(path string, do, database any) bool {
	needs, is := v.pages[path].roleOf(fmt.Sprint(do))
	return is && v.Who != "" && v.user.roles.on(fmt.Sprint(database)) >= needs
}

// Offers reports whether a page has a link to the preview of an action: the user may do it, or is not signed in yet.
func (v view) Offers(path string, do, database any) bool {
	return v.Who == "" || v.Can(path, do, database)
}

// Needs returns the role that an action of a page needs.
func (v view) Needs(path string, do any) Role {
	role, _ := v.pages[path].roleOf(fmt.Sprint(do))
	return role
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
	var other elsewhere
	switch {
	case errors.As(err, &other) && !wantsJSON(r):
		http.Redirect(w, r, c.cfg.Path+other.page, http.StatusSeeOther)
		return
	case err != nil:
		c.fail(w, r, err)
		return
	}
	c.send(w, r, u, a)
}

// answerOf reads the facts of a page and renders them. It holds the turn of a page with payloads until then, and not while a client
// receives the answer.
func (c *Console) answerOf(ctx context.Context, r *http.Request, p *page, u user) (*rendered, error) {
	values := r.URL.Query()
	if err := checkText(values); err != nil {
		return nil, err
	}
	asked, err := c.askOf(p, values, u, p.role())
	if err != nil {
		return nil, err
	}
	end, err := c.turns.take(ctx, clientOf(r, u))
	if err != nil {
		return nil, err
	}
	defer end()
	release, err := c.reserve(ctx, p)
	if err != nil {
		return nil, err
	}
	defer release()
	facts, err := p.read(ctx, asked)
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
	v.of(u)
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
		switch {
		case len(c.accounts.Load().tokens) == 0:
			c.fail(w, r, refuse(http.StatusUnauthorized, "want the proxy's header with a user's name: reach the console through the proxy"))
		case wantsJSON(r):
			w.Header().Set("WWW-Authenticate", "Bearer")
			c.fail(w, r, refuse(http.StatusUnauthorized, "want the header Authorization: Bearer TOKEN"))
		default:
			http.Redirect(w, r, c.cfg.Path+"/sign-in?to="+url.QueryEscape(c.cfg.Path+r.URL.RequestURI()), http.StatusSeeOther)
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
	v := view{Title: http.StatusText(status), Facts: err.Error(), Refused: true}
	v.of(c.userOf(r))
	c.draw(w, r, status, "error", v)
}

func (c *Console) draw(w http.ResponseWriter, r *http.Request, status int, name string, v view) {
	c.send(w, r, v.user, c.render(r, status, name, v))
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
	v.Path, v.Here, v.CanAct = c.cfg.Path, c.cfg.Path+cmp.Or(r.URL.RequestURI(), "/"), c.acts()
	v.pages, v.At = c.pages, time.Now()
	v.Finds = !c.cfg.Private || slices.ContainsFunc(c.sources, func(s *source) bool { return v.user.roles.on(s.Name) >= c.pages["/messages"].role() })
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
	var text bytes.Buffer
	if err := writeJSON(&text, facts); err != nil {
		return encode(http.StatusInternalServerError, map[string]string{"error": "these facts cannot be written as JSON: " + err.Error()})
	}
	return &rendered{status: status, media: "application/json", text: *bytes.NewBuffer(jsontext.Indent(text.Bytes(), ""))}
}

// writeJSON writes facts as JSON, with a line break at the end. Characters of HTML are not escaped, since a payload of them would be six times as
// large: a browser takes no answer of this type for HTML.
func writeJSON(to io.Writer, facts any) error {
	encoder := json.NewEncoder(to)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(facts)
}

// stateOf returns a digest that changes with the facts.
func stateOf(facts any) string {
	if f, ok := facts.(interface{ still() any }); ok { // without facts that change while nothing happens
		facts = f.still()
	}
	sum := sha256.New()
	_ = writeJSON(sum, facts)
	return hex.EncodeToString(sum.Sum(nil)[:8])
}
