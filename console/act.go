package console

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/troupe-go/troupe/internal/plain"
)

// do handles a POST: it checks the token, the form and the fields, and runs the page's action.
func (c *Console) do(w http.ResponseWriter, r *http.Request, p *page) {
	if !c.acts() {
		c.fail(w, r, refuse(http.StatusForbidden, "this console was started without a token: it only shows"))
		return
	}
	if err := r.ParseForm(); err != nil {
		if status := statusOf(err); status != http.StatusBadGateway {
			c.fail(w, r, err)
		} else {
			c.fail(w, r, refuse(http.StatusBadRequest, "the form cannot be read: %s", err))
		}
		return
	}
	u, needs, err := c.admitted(w, r, p)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	a, err := c.askOf(p, r.PostForm, u, needs)
	if err != nil {
		c.cfg.Log.Warn().Err(err).Str("action", p.path).Str("what", r.PostForm.Get("do")).Str("actor", u.name).Str("from", r.RemoteAddr).Msg("console: action refused")
		c.fail(w, r, err)
		return
	}
	a.by.Reason = r.PostForm.Get("reason")
	ctx, cancel := context.WithTimeout(r.Context(), actLimit)
	defer cancel()
	done, next, err := p.act(ctx, a)
	event := c.cfg.Log.Info()
	if err != nil {
		event = c.cfg.Log.Warn().Err(err)
	}
	event.Str("action", p.path).Str("what", a.get("do")).Str("actor", u.name).Str("database", a.get("db")).Str("id", a.get("id")).
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
		answer(w, http.StatusOK, done)
	default:
		http.Redirect(w, r, c.cfg.Path+next, http.StatusSeeOther)
	}
}

// admitted returns the user of an action, with the name for the records, and the role that the action needs.
func (c *Console) admitted(w http.ResponseWriter, r *http.Request, p *page) (u user, needs Role, err error) {
	u = c.userOf(r)
	switch {
	case u.name == "":
		w.Header().Set("WWW-Authenticate", "Bearer")
		return u, needs, refuse(http.StatusUnauthorized, "sign in to act; a program sends the header Authorization: Bearer TOKEN")
	case u.form != "" && !same(u.form, r.PostForm.Get("form")): // no browser sends a program's token by itself
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
	if err := plain.CheckName(u.name); err != nil {
		return u, needs, refuse(http.StatusBadRequest, "actor: %s", err)
	}
	return u, needs, checkText(r.PostForm)
}

// actLimit bounds an action. It is longer than an action's wait for a lock.
const actLimit = 2 * askLimit

const mostReason = 2000

// counted returns an error unless the request's count is the number of rows that the action would discard: the user has seen how
// many they are.
func (a *ask) counted(read func() (int, error)) error {
	given, err := a.number("count")
	if err != nil {
		return err
	}
	if a.get("count") == "" {
		return refuse(http.StatusBadRequest, "count: want the number of rows that would be discarded, to confirm it")
	}
	have, err := read()
	if err == nil && int64(have) != given {
		return refuse(http.StatusConflict, "count: there are %d now, and not %d: nothing was discarded; look again at them", have, given)
	}
	return err
}

// needsReason returns an error unless the request has a valid reason; it is for actions whose record requires one.
func (a *ask) needsReason() error {
	switch {
	case strings.TrimSpace(a.by.Reason) == "":
		return refuse(http.StatusBadRequest, "reason: whoever reads the record must know why; a ticket's number is enough")
	case len(a.by.Reason) > mostReason || len(a.by.Actor) > mostName:
		return refuse(http.StatusBadRequest, "reason: at most %d bytes, and an actor's name at most %d", mostReason, mostName)
	}
	return nil
}
