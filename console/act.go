package console

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/plain"
)

// do handles a POST: it checks the token, the form and the fields, and runs the page's action.
func (c *Console) do(w http.ResponseWriter, r *http.Request, p *page) {
	if c.cfg.Token == "" {
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
	u := c.userOf(r)
	who := u.name
	switch {
	case who == "":
		w.Header().Set("WWW-Authenticate", "Bearer")
		c.fail(w, r, refuse(http.StatusUnauthorized, "sign in to act; a program sends the header Authorization: Bearer TOKEN"))
		return
	case u.form == "": // a program; no browser sends its token by itself
		who = r.PostForm.Get("actor")
	case !same(u.form, r.PostForm.Get("form")):
		c.fail(w, r, refuse(http.StatusForbidden, "the form is not of this session: open the page again, and send it from there"))
		return
	}
	if do := strings.TrimSpace(r.PostForm.Get("do")); !slices.Contains(strings.Fields(p.actions), do) {
		c.fail(w, r, refuse(http.StatusBadRequest, "do %q: want one of %s", do, strings.Join(strings.Fields(p.actions), ", ")))
		return
	}
	if strings.TrimSpace(who) == "" {
		c.fail(w, r, refuse(http.StatusBadRequest, "actor: want who does it, for the record"))
		return
	}
	if err := plain.CheckName(who); err != nil {
		c.fail(w, r, refuse(http.StatusBadRequest, "actor: %s", err))
		return
	}
	if err := checkText(r.PostForm); err != nil {
		c.fail(w, r, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), actLimit)
	defer cancel()
	a := &ask{c, p, r.PostForm, repair.By{Actor: who, Reason: r.PostForm.Get("reason")}}
	done, next, err := p.act(ctx, a)
	event := c.cfg.Log.Info()
	if err != nil {
		event = c.cfg.Log.Warn().Err(err)
	}
	event.Str("action", p.path).Str("what", a.get("do")).Str("actor", who).Str("database", a.get("db")).Str("id", a.get("id")).
		Str("from", r.RemoteAddr).Msg("console: action")
	var told retold
	switch {
	case errors.As(err, &told) && !wantsJSON(r):
		v := viewOf(p, told.facts)
		v.Who, v.Form = who, u.form
		c.draw(w, r, statusOf(err), p.template, v)
	case err != nil:
		c.fail(w, r, err)
	case wantsJSON(r):
		answer(w, http.StatusOK, done)
	default:
		http.Redirect(w, r, c.cfg.Path+next, http.StatusSeeOther)
	}
}

// actLimit bounds an action. It is longer than an action's wait for a lock.
const actLimit = 2 * askLimit

const mostReason = 2000

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
