package sagahttp

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/internal/jsontext"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
)

const (
	mostDigits = 1100 // bytes that a number with an exponent may have when it is read: 1e1000 has a thousand digits then
	valueSize  = 64   // bytes that each value takes when it is read, even an empty object
)

// start starts a saga, or finds it.
func (s *Sagas) start(r *http.Request, a asked) (out response, err error) {
	if !a.large && len(a.body)+jsontext.Exponents(a.body)*mostDigits+jsontext.Values(a.body)*valueSize > smallBody {
		if !s.large.enter() {
			return out, errBusy
		}
		defer s.large.leave()
	}
	fields, err := saga.ReadFields(a.body)
	if err != nil {
		return out, refuse(http.StatusBadRequest, "the variables: %s", err)
	}
	if fields, err = a.definition.WithKey(fields, a.key); err != nil {
		return out, refuse(http.StatusUnprocessableEntity, "%s", err)
	}
	_, data, err := decisions.StartData(a.definition, fields)
	if err == nil {
		_, err = a.definition.Lock(data)
	}
	if err != nil {
		return out, refuse(http.StatusUnprocessableEntity, "%s", err)
	}
	is, err := a.coordinator.Submit(r.Context(), a.saga, fields, nil)
	switch {
	case errors.Is(err, coordinator.ErrRefused):
		return out, refuse(http.StatusUnprocessableEntity, "%s", err)
	case err != nil:
		return out, err
	}
	out.ID, out.Existed = is.ID, is.Existed
	if is.OtherData {
		return out, refuse(http.StatusConflict, "saga %s was started with other data: the key belongs to another request", is.ID)
	}
	return out, nil
}

// show returns nothing of its own: answer reads the saga.
func (s *Sagas) show(*http.Request, asked) (response, error) { return response{}, nil }

// cancel applies the cancel that the definition declares for operators, unless a cancel was accepted before.
func (s *Sagas) cancel(r *http.Request, a asked) (out response, err error) {
	var by struct {
		Actor  string `json:"actor"`
		Reason string `json:"reason"`
	}
	if err := json.Unmarshal(a.body, &by); err != nil {
		return out, refuse(http.StatusBadRequest, "want a JSON object with actor and reason: %s", err)
	}
	e := saga.Event{Kind: saga.ActCancel, Actor: by.Actor, Reason: by.Reason}
	if err := decisions.CheckActor(e); err != nil {
		return out, refuse(http.StatusUnprocessableEntity, "%s", err)
	}
	if _, err := s.look(r.Context(), a, out); err != nil {
		return out, err
	}
	for range conflictTries {
		err = pgx.BeginTxFunc(r.Context(), s.cfg.Pool, decisions.Committed, func(tx pgx.Tx) error {
			_, err := a.coordinator.Act(r.Context(), tx, a.id(), e)
			return err
		})
		if !errors.Is(err, coordinator.ErrConflict) {
			break
		}
	}
	if errors.Is(err, coordinator.ErrRefused) {
		now, lost := s.look(r.Context(), a, out)
		if lost != nil {
			return out, lost
		}
		if now.Cancel == saga.CancelAccepted { // the request is repeated, or an event has cancelled the saga
			return out, nil
		}
		return out, refuse(http.StatusConflict, "%s", err)
	}
	return out, err
}
