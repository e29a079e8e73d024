package console

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/admin"
)

// do handles a POST: it checks the token, the form and the fields, and runs the page's action.
func (c *Console) do(w http.ResponseWriter, r *http.Request, p *page) {
	if !c.acts() {
		c.fail(w, r, refuse(http.StatusForbidden, "this console was started without a token: it only shows"))
		return
	}
	u := c.userOf(r)
	if u.name == "" { // before the body is read
		c.fail(w, r, unsigned(w))
		return
	}
	if err := readForm(w, r, c.mostForm(p, u)); err != nil {
		c.fail(w, r, err)
		return
	}
	u, needs, err := c.admitted(r, p, u)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	a, err := c.askOf(p, r.PostForm, u, needs)
	if err != nil {
		c.cfg.Log.Warn().Err(err).Str("action", p.path).Str("what", clip(r.PostForm.Get("do"), mostLogged)).Str("actor", u.name).Str("from", r.RemoteAddr).Msg("console: action refused")
		c.fail(w, r, err)
		return
	}
	a.by.Reason = r.PostForm.Get("reason")
	ctx, cancel := context.WithTimeout(r.Context(), actLimit)
	defer cancel()
	done, next, err := c.act(ctx, r, a)
	event := c.cfg.Log.Info()
	if err != nil {
		event = c.cfg.Log.Warn().Err(err)
	}
	event.Str("action", p.path).Str("what", clip(a.typed("do"), mostLogged)).Str("actor", u.name).Str("database", clip(a.get("db"), mostLogged)).Str("id", clip(a.get("id"), mostLogged)).
		Str("from", r.RemoteAddr).Msg("console: action")
	var told retold
	switch {
	case errors.As(err, &told) && !wantsJSON(r):
		v := viewOf(p, told.facts)
		v.of(u)
		c.draw(w, r, statusOf(err), p.template, v)
	case err != nil:
		c.fail(w, r, err)
	case wantsJSON(r):
		c.send(w, r, u, encode(http.StatusOK, done))
	case next == "": // a preview: it is drawn here, so that its values are in no URL
		v := viewOf(p, done)
		v.of(u)
		c.draw(w, r, http.StatusOK, p.template, v)
	default:
		http.Redirect(w, r, c.cfg.Path+next, http.StatusSeeOther)
	}
}

// act runs the action of a page when it is the client's turn.
func (c *Console) act(ctx context.Context, r *http.Request, a *ask) (done any, next string, err error) {
	end, err := c.turns.take(ctx, clientOf(r, a.user))
	if err != nil {
		return nil, "", err
	}
	defer end()
	return a.page.act(ctx, a)
}

// mostLogged limits the characters of a value in a line of the log, since the form does not limit it.
const mostLogged = 1000

// mostForm returns the largest form in bytes that a user may send to a page.
func (c *Console) mostForm(p *page, u user) int64 {
	needs, edits := p.roleOf("edit")
	if edits && slices.ContainsFunc(c.sources, func(s *source) bool { return u.roles.on(s.Name) >= needs }) {
		return bodyLimit
	}
	return formLimit
}

// readForm parses the form of a request, of at most limit bytes.
func readForm(w http.ResponseWriter, r *http.Request, limit int64) error {
	r.Body = http.MaxBytesReader(w, r.Body, limit)
	err := r.ParseForm()
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return refuse(http.StatusRequestEntityTooLarge, "the form has more than %d bytes", limit)
	case err != nil:
		return refuse(http.StatusBadRequest, "the form cannot be read: %s", err)
	}
	return nil
}

// unsigned returns the error for an action without a user.
func unsigned(w http.ResponseWriter) error {
	w.Header().Set("WWW-Authenticate", "Bearer")
	return refuse(http.StatusUnauthorized, "sign in to act; a program sends the header Authorization: Bearer TOKEN")
}

// admitted returns the user of an action, with the name for the records, and the role that the action needs.
func (c *Console) admitted(r *http.Request, p *page, u user) (_ user, needs Role, err error) {
	if u.form != "" && !same(u.form, r.PostForm.Get("form")) { // no browser sends a program's token by itself
		return u, needs, refuse(http.StatusForbidden, "the form is not of this session: open the page again, and send it from there")
	}
	do := strings.TrimSpace(r.PostForm.Get("do"))
	needs, is := p.roleOf(do)
	if !is {
		return u, needs, refuse(http.StatusBadRequest, "do %q: want one of %s", do, strings.Join(p.actions(), ", "))
	}
	given := strings.TrimSpace(r.PostForm.Get("actor"))
	switch {
	case u.shared && given == "":
		return u, needs, refuse(http.StatusBadRequest, "actor: want the name of the person or program, for the record")
	case u.shared:
		u.name = r.PostForm.Get("actor")
	case given != "" && given != u.name:
		return u, needs, refuse(http.StatusForbidden, "actor: the record has the name that you signed in with: leave the field out")
	}
	if err := (admin.Actor{Name: u.name, Reason: r.PostForm.Get("reason")}).Check(); err != nil {
		return u, needs, err
	}
	return u, needs, checkText(r.PostForm)
}

// actLimit bounds an action. It is longer than an action's wait for a lock.
const actLimit = 2 * askLimit

// counted returns an error unless the request's count is the number of objects that the action would change: the user has seen how
// many they are.
func (a *ask) counted(read func() (int, error)) error {
	given, err := a.number("count")
	if err != nil {
		return err
	}
	if a.typed("count") == "" {
		return refuse(http.StatusBadRequest, "count: want how many there are, to confirm it")
	}
	have, err := read()
	if err == nil && int64(have) != given {
		return refuse(http.StatusConflict, "count: there are %d now, and not %d: nothing was done; look again at them", have, given)
	}
	return err
}
