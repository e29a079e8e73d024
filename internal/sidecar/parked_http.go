package sidecar

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"github.com/troupe-go/troupe/internal/admin"
	desk "github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/internal/pgtext"
)

// alone lets one request at a time list parked rows. The next one begins when the client has the whole answer: a page has up to 2 MiB of text, which
// takes some times as much in the memory of the process that publishes. A request that waits for askLimit gets 503.
func (a *adminHandler) alone(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), askLimit)
		defer cancel()
		select {
		case a.listing <- struct{}{}:
			defer func() { <-a.listing }()
			next(w, r)
		case <-ctx.Done():
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusServiceUnavailable, "another request lists parked rows: try again, or use outbox-relay parked list")
		}
	}
}

// listParked returns no payloads: the command parked show prints them, for operators who may read the database.
func (a *adminHandler) listParked(w http.ResponseWriter, r *http.Request, o *outlet) {
	query := r.URL.Query()
	after, err := strconv.ParseInt(cmp.Or(query.Get("after"), "0"), 10, 64)
	if err != nil || after < 0 {
		refuse(w, http.StatusBadRequest, "after: want a position, as next of the page before")
		return
	}
	limit, err := strconv.Atoi(cmp.Or(query.Get("limit"), strconv.Itoa(parkedPerPage)))
	if err != nil || limit < 1 || limit > desk.MostRows {
		refuse(w, http.StatusBadRequest, "limit: want 1 to "+strconv.Itoa(desk.MostRows))
		return
	}
	if !pgtext.Fits([]byte(query.Get("topic"))) {
		refuse(w, http.StatusBadRequest, "topic: want text in UTF-8 without the character NUL")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), askLimit)
	defer cancel()
	page, err := listParked(ctx, o.desk(), query.Get("topic"), desk.Page{After: after, Rows: limit})
	if err != nil {
		refuse(w, http.StatusBadGateway, err.Error())
		return
	}
	answer(w, http.StatusOK, page)
}

// accept decodes a request's JSON body into into. Unknown fields are errors. If it fails, it answers 400 and returns false.
func accept(w http.ResponseWriter, r *http.Request, into any) bool {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		refuse(w, http.StatusBadRequest, "the body: "+err.Error())
		return false
	}
	return true
}

// A repairing is an action on one parked row.
type repairing func(desk.Desk, context.Context, desk.RowID, admin.Actor) (desk.Repaired, error)

func (a *adminHandler) repair(name string, check func(admin.Actor) error, do repairing) func(http.ResponseWriter, *http.Request, *outlet) {
	return func(w http.ResponseWriter, r *http.Request, o *outlet) {
		id, err := uuid.Parse(r.PathValue("id"))
		if err != nil {
			refuse(w, http.StatusBadRequest, "the id: want a UUID, as GET /parked shows it")
			return
		}
		topic := r.URL.Query().Get("topic")
		if !pgtext.Fits([]byte(topic)) {
			refuse(w, http.StatusBadRequest, "topic: want text in UTF-8 without the character NUL")
			return
		}
		var by admin.Actor
		if !accept(w, r, &by) {
			return
		}
		if err := check(by); err != nil {
			refuse(w, http.StatusBadRequest, `the body: `+err.Error()+`: {"actor": "ann", "reason": "ticket 4711"}`)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), askLimit)
		defer cancel()
		done, err := do(o.desk(), ctx, desk.RowID{ID: id, Topic: topic}, by)
		switch {
		case errors.Is(err, desk.ErrNotParked):
			refuse(w, http.StatusNotFound, err.Error())
			return
		case errors.Is(err, desk.ErrSeveral):
			refuse(w, http.StatusConflict, err.Error())
			return
		case err != nil:
			refuse(w, http.StatusBadGateway, err.Error())
			return
		}
		a.log.Info().Str("action", name).Str("outbox", o.plan.name).Str("actor", by.Name).Stringer("id", id).
			Int64("position", done.Position).Str("from", r.RemoteAddr).Msg("admin")
		answer(w, http.StatusOK, done)
	}
}
