package sidecar

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/google/uuid"
)

// listParked shows no payloads: these are for parked show, and for who may read the database.
func (a *adminHandler) listParked(w http.ResponseWriter, r *http.Request) {
	o := a.outlet(w, r)
	if o == nil {
		return
	}
	query := r.URL.Query()
	after, err := strconv.ParseInt(orElse(query.Get("after"), "0"), 10, 64)
	if err != nil || after < 0 {
		refuse(w, http.StatusBadRequest, "after: want a position, as next of the page before")
		return
	}
	limit, err := strconv.Atoi(orElse(query.Get("limit"), strconv.Itoa(parkedPerPage)))
	if err != nil || limit < 1 || limit > mostParkedPage {
		refuse(w, http.StatusBadRequest, "limit: want 1 to "+strconv.Itoa(mostParkedPage))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), askLimit)
	defer cancel()
	page, err := readParked(ctx, o.statistics().pool, o.plan.table(), pageOf{query.Get("topic"), after, limit})
	if err != nil {
		refuse(w, http.StatusBadGateway, err.Error())
		return
	}
	answer(w, http.StatusOK, page)
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

func (a *adminHandler) retryParked(w http.ResponseWriter, r *http.Request) {
	a.repair(w, r, "retry", retryParked)
}

func (a *adminHandler) discardParked(w http.ResponseWriter, r *http.Request) {
	a.repair(w, r, "discard", discardParked)
}

func (a *adminHandler) repair(w http.ResponseWriter, r *http.Request, name, action string) {
	o := a.outlet(w, r)
	if o == nil {
		return
	}
	id, err := uuid.Parse(r.PathValue("id"))
	if err != nil {
		refuse(w, http.StatusBadRequest, "the id: want a UUID, as GET /parked shows it")
		return
	}
	var who by
	if !accept(w, r, &who) {
		return
	}
	if err := who.check(action); err != nil {
		refuse(w, http.StatusBadRequest, `the body: `+err.Error()+`: {"actor": "ann", "reason": "ticket 4711"}`)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), askLimit)
	defer cancel()
	done, err := repair(ctx, o.statistics().pool, o.plan.table(), action, id, who)
	var absent notParked
	switch {
	case errors.As(err, &absent):
		refuse(w, http.StatusNotFound, err.Error())
		return
	case err != nil:
		refuse(w, http.StatusBadGateway, err.Error())
		return
	}
	a.log.Info().Str("action", name).Str("outbox", o.plan.name).Str("actor", who.Actor).Stringer("id", id).
		Int64("position", done.Position).Str("from", r.RemoteAddr).Msg("admin")
	answer(w, http.StatusOK, done)
}
