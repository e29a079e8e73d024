package order

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/trace"
)

// api returns the handler of the HTTP API.
//
//	POST /orders       202: the order is written and its saga begun; Location is the order's path. The Idempotency-Key
//	                   is stored with the order that it placed.
//	                     the same key, the same order      the same answer
//	                     the same key, another order       422
//	                     no key or another, the same order the same answer, since the order id is a key as well
//	                     the same order id, another order  409
//	                   400 names the field and the error in it. 503: try again, with the same key.
//	GET /orders/{id}   200: the order and its saga so far
func (s *service) api() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.postOrder)
	mux.HandleFunc("GET /orders/{id}", s.getOrder)
	return mux
}

func (s *service) postOrder(w http.ResponseWriter, r *http.Request) {
	ctx, span := s.spans.Start(r.Context(), "POST /orders", trace.WithSpanKind(trace.SpanKindServer)) // the trace begins here
	defer span.End()
	o, key, err := readRequest(w, r)
	if err == nil {
		err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return s.placeOrder(ctx, tx, o, key) })
	}
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	w.Header().Set("Location", "/orders/"+url.PathEscape(o.ID))
	writeJSON(w, http.StatusAccepted, "application/json", map[string]string{"order_id": o.ID})
}

func (s *service) getOrder(w http.ResponseWriter, r *http.Request) {
	v, err := readView(r.Context(), s.pool, r.PathValue("id"))
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, "application/json", v)
}

// writeError answers with the problem in err. An error without a problem is internal: it is logged.
func (s *service) writeError(w http.ResponseWriter, r *http.Request, err error) {
	var p problem
	switch {
	case errors.As(err, &p):
	case errors.Is(err, pgx.ErrNoRows):
		p = problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("no order %q", r.PathValue("id"))}
	default:
		if r.Context().Err() == nil {
			s.log.Error().Err(err).Str("path", r.URL.Path).Msg("request failed")
		}
		w.Header().Set("Retry-After", "1")
		p = problem{Status: http.StatusServiceUnavailable, Detail: "the order could not be read or written: try again"}
	}
	p.write(w)
}
