package sagahttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/internal/door"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
)

const (
	defaultMost = 256
	longestWait = 30 * time.Second // with workLimit twice it is below the minute that the program allows for a response
	workLimit   = 10 * time.Second // for the database
	mostBody    = 1 << 20
	smallBody   = 32 << 10
	// mostLarge limits how many requests with a larger body are applied at once, how many sagas are read, how many responses with more
	// variables are written, and how many requests wait for sagas with more: decoded variables may have ten times their size.
	mostLarge     = 8
	conflictTries = 3
)

// Config configures Sagas. Pool and Definitions are required.
type Config struct {
	// Pool connects to the coordinator's database.
	Pool *pgxpool.Pool
	// Definitions are the coordinator's. A saga of another type is not found.
	Definitions []*saga.Definition
	// Token is the token that a request must have as Authorization: Bearer. Empty: every request that reaches the handler may start
	// sagas and read their variables.
	Token string
	// Most is the number of requests that are served at once; others get 503. Default 256. At most
	// 8 of them have a body of more than 32 KiB, or of some hundred values, and at most 8 are written a response with more variables; the largest body has 1 MiB.
	Most int
	// Log gets the database errors, which are not in the response.
	Log zerolog.Logger
}

// Sagas is the http.Handler. It may be used concurrently.
type Sagas struct {
	cfg         Config
	definitions map[string]*saga.Definition
	desk        *sagadesk.Desk
	token       door.Token
	turns       chan struct{}
	large       places // of requests with a large body
	reads       places // of sagas that are read
	writes      places // of responses with many variables
	waits       places // of requests that wait for a saga with many variables
	mux         *http.ServeMux
	done        <-chan struct{}
	coordinator atomic.Pointer[coordinator.Coordinator]
}

// New checks the configuration and sets the defaults. It does no I/O. When ctx ends, the requests that wait are answered at once.
func New(ctx context.Context, cfg Config) (*Sagas, error) {
	switch {
	case cfg.Pool == nil:
		return nil, errors.New("sagahttp: config without a pool")
	case len(cfg.Definitions) == 0:
		return nil, errors.New("sagahttp: config without definitions")
	case cfg.Most < 0:
		return nil, fmt.Errorf("sagahttp: most %d: want 1 or more", cfg.Most)
	case cfg.Most == 0:
		cfg.Most = defaultMost
	}
	desk, err := sagadesk.New(sagadesk.Config{Pool: cfg.Pool})
	if err != nil {
		return nil, err
	}
	s := &Sagas{
		cfg: cfg, definitions: make(map[string]*saga.Definition), desk: desk, turns: make(chan struct{}, cfg.Most),
		large: make(places, mostLarge), reads: make(places, mostLarge), writes: make(places, mostLarge), waits: make(places, mostLarge),
		mux: http.NewServeMux(), done: ctx.Done(),
	}
	for _, d := range cfg.Definitions {
		s.definitions[d.Spec().Saga] = d
	}
	s.token.Set(cfg.Token)
	s.mux.HandleFunc("POST /sagas/{saga}/{key}", s.serve(s.start))
	s.mux.HandleFunc("GET /sagas/{saga}/{key}", s.serve(s.show))
	s.mux.HandleFunc("POST /sagas/{saga}/{key}/cancel", s.serve(s.cancel))
	return s, nil
}

// Coordinate sets the coordinator. Until then every request gets 503.
func (s *Sagas) Coordinate(c *coordinator.Coordinator) { s.coordinator.Store(c) }

// ServeHTTP implements http.Handler.
func (s *Sagas) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// refusal is the status and the reason of a request that is refused.
type refusal struct {
	status int
	reason string
}

func (r refusal) Error() string { return r.reason }

func refuse(status int, format string, args ...any) error {
	return refusal{status, fmt.Sprintf(format, args...)}
}

var errBusy = refuse(http.StatusServiceUnavailable, "busy with other large requests: send it again")

// places limits how many requests do the same at once.
type places chan struct{}

// enter reports whether there was a place.
func (p places) enter() bool {
	select {
	case p <- struct{}{}:
		return true
	default:
		return false
	}
}

func (p places) leave() { <-p }

// serve checks a request, and writes the response of do.
func (s *Sagas) serve(do func(*http.Request, asked) (response, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		out, err := response{}, s.admit(r)
		if err == nil {
			select {
			case s.turns <- struct{}{}:
				defer func() { <-s.turns }()
				out, err = s.answer(w, r, do)
			default:
				err = refuse(http.StatusServiceUnavailable, "busy: send it again")
			}
		}
		var no refusal
		switch {
		case errors.As(err, &no):
			out = response{status: no.status, ID: out.ID, Existed: out.Existed, Error: no.reason}
		case err != nil:
			s.cfg.Log.Error().Err(err).Str("saga", r.PathValue("saga")).Msg("a request for a saga failed, and was answered with 503, so that the caller sends it again")
			out = response{status: http.StatusServiceUnavailable, Error: "the database cannot be reached now: send it again"}
		}
		out.write(w)
		if out.place != nil {
			out.place.leave()
		}
	}
}

// admit checks the token.
func (s *Sagas) admit(r *http.Request) error {
	switch s.token.Check(r) {
	case door.NoToken, door.Right:
		return nil
	case door.TooMany:
		return refuse(http.StatusTooManyRequests, "%s", door.Explanation)
	}
	return refuse(http.StatusUnauthorized, "want the header Authorization: Bearer TOKEN")
}

// answer reads the request, runs do, and waits for the saga's end as long as the request prefers. It does not wait for a saga with many
// variables if there is no place.
func (s *Sagas) answer(w http.ResponseWriter, r *http.Request, do func(*http.Request, asked) (response, error)) (response, error) {
	a, out, err := s.work(w, r, do)
	if err != nil {
		return out, err
	}
	if a.wait > 0 {
		now, err := s.look(r.Context(), a, out)
		switch {
		case err != nil:
			return out, err
		case now.large() && !s.waits.enter():
			a.wait = 0
		case now.large():
			defer s.waits.leave()
		}
	}
	if a.wait > 0 {
		w.Header().Set("Preference-Applied", fmt.Sprintf("wait=%d", int(a.wait.Seconds())))
		s.await(r.Context(), a)
	}
	if out, err = s.look(r.Context(), a, out); err != nil || !out.large() {
		return out, err
	}
	if !s.writes.enter() {
		return out, errBusy
	}
	out.place = s.writes
	return out, nil
}

// look adds the saga to a response.
func (s *Sagas) look(ctx context.Context, a asked, out response) (response, error) {
	ctx, stop := context.WithTimeout(ctx, workLimit)
	defer stop()
	select {
	case s.reads <- struct{}{}:
		defer s.reads.leave()
	case <-ctx.Done():
		return out, errBusy
	}
	g, err := s.desk.Get(ctx, a.id())
	if errors.Is(err, coordinator.ErrNotFound) {
		return out, refuse(http.StatusNotFound, "there is no saga %s", a.id())
	}
	if err != nil {
		return out, err
	}
	return out.of(g.State, a)
}

// work reads the request and runs do.
func (s *Sagas) work(w http.ResponseWriter, r *http.Request, do func(*http.Request, asked) (response, error)) (a asked, out response, err error) {
	large := r.ContentLength < 0 || r.ContentLength > smallBody
	if large {
		if !s.large.enter() {
			return a, out, errBusy
		}
		defer s.large.leave()
	}
	if a, err = s.read(w, r); err != nil {
		return a, out, err
	}
	a.large = large
	if a.coordinator = s.coordinator.Load(); a.coordinator == nil {
		return a, out, refuse(http.StatusServiceUnavailable, "starting: send it again")
	}
	ctx, stop := context.WithTimeout(r.Context(), workLimit)
	defer stop()
	out, err = do(r.WithContext(ctx), a)
	a.body = nil
	return a, out, err
}

// await waits for the end of a saga. An error of the wait is not the request's: the saga's state is read afterwards.
func (s *Sagas) await(ctx context.Context, a asked) {
	ctx, stop := context.WithTimeout(ctx, a.wait)
	defer stop()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-s.done:
			stop()
		case <-ended:
		}
	}()
	if _, err := a.coordinator.Wait(ctx, a.saga, a.key); err != nil && ctx.Err() == nil && !errors.Is(err, coordinator.ErrNotFound) {
		s.cfg.Log.Warn().Err(err).Str("saga", a.id()).Msg("the end of a saga cannot be waited for")
	}
}
