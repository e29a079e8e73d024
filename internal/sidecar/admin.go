package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/internal/admin"
	desk "github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/internal/door"
	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/relay"
)

// An adminHandler serves the admin endpoints. Without a token it answers reads only, and run makes it listen on loopback only.
// With a token, every endpoint except /livez and /readyz requires it.
type adminHandler struct {
	guard
	fleet   *fleet
	log     zerolog.Logger
	mux     *http.ServeMux
	listing chan struct{} // has a value while a request lists parked rows
}

// A guard admits read requests: with a token set, those requests must carry it; without one, their Host must be localhost or a
// loopback address.
type guard struct{ token followed }

func newAdmin(f *fleet, registry *prometheus.Registry, log zerolog.Logger) *adminHandler {
	a := &adminHandler{fleet: f, log: log, mux: http.NewServeMux(), listing: make(chan struct{}, 1)}
	a.mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, health{OK: true})
	})
	a.mux.HandleFunc("GET /readyz", a.ready)
	a.mux.HandleFunc("GET /status", a.reads(a.status))
	a.mux.HandleFunc("GET /metrics", a.reads(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP))
	a.mux.HandleFunc("GET /parked", a.reads(a.alone(a.one(a.listParked))))
	a.mux.HandleFunc("GET /replay", a.reads(a.one(a.showReplay)))

	a.mux.HandleFunc("POST /pause", a.acts(a.each("pause", (*relay.Relay).Pause)))
	a.mux.HandleFunc("POST /resume", a.acts(a.each("resume", (*relay.Relay).Resume)))
	a.mux.HandleFunc("POST /parked/{id}/retry", a.acts(a.one(a.repair("retry", admin.Actor.Check, desk.Desk.Retry))))
	a.mux.HandleFunc("POST /parked/{id}/discard", a.acts(a.one(a.repair("discard", admin.Actor.CheckReasoned, desk.Desk.Discard))))
	a.mux.HandleFunc("POST /replay", a.acts(a.one(a.startReplay)))
	a.mux.HandleFunc("DELETE /replay", a.acts(a.one(a.stopReplay)))
	return a
}

// mostBody is the largest request body in bytes that is read.
const mostBody = 64 << 10

func (a *adminHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, mostBody)
	a.mux.ServeHTTP(w, r)
}

// mayRead reports whether a request may read. If not, refused answers it.
func (g *guard) mayRead(r *http.Request) (may bool, refused func(http.ResponseWriter)) {
	switch g.token.Check(r) {
	case door.NoToken:
		return door.Called(r.Host, door.Localhost), elsewhere(r)
	case door.Right:
		return true, nil
	case door.TooMany:
		return false, tooMany
	default:
		return false, unauthorized
	}
}

// reads wraps the handler of a request that reads.
func (g *guard) reads(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if may, refused := g.mayRead(r); !may {
			refused(w)
			return
		}
		next(w, r)
	}
}

// acts wraps the handler of a request that changes something. Without a token set, it refuses all requests.
func (a *adminHandler) acts(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch a.token.Check(r) {
		case door.NoToken:
			refuse(w, http.StatusForbidden,
				"there are no actions without a token: set "+adminToken.variable()+"_FILE, or "+adminToken.fileName())
		case door.Right:
			next(w, r)
		case door.TooMany:
			tooMany(w)
		default:
			unauthorized(w)
		}
	}
}

func unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	refuse(w, http.StatusUnauthorized, "want the header Authorization: Bearer TOKEN")
}

func tooMany(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "6")
	refuse(w, http.StatusTooManyRequests, door.Explanation)
}

// here admits only requests whose Host is localhost or a loopback address. It wraps endpoints without a token.
func here(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !door.Called(r.Host, door.Localhost) {
			elsewhere(r)(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// elsewhere refuses a request with another Host: a web page may have led the browser here by a host name of its own (DNS
// rebinding).
func elsewhere(r *http.Request) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		refuse(w, http.StatusMisdirectedRequest,
			fmt.Sprintf("host %.100q: without a token only %s and addresses of loopback are answered; set a token", r.Host, door.Localhost))
	}
}

type refusal struct {
	Error string `json:"error"`
}

func refuse(w http.ResponseWriter, code int, reason string) { answer(w, code, refusal{reason}) }

// outlets returns the outlet that ?outbox= names, or all outlets. For an unknown name it answers 404 and returns nil.
func (a *adminHandler) outlets(w http.ResponseWriter, r *http.Request) []*outlet {
	name := r.URL.Query().Get("outbox")
	if name == "" {
		return a.fleet.list()
	}
	if o := a.fleet.find(name); o != nil {
		return []*outlet{o}
	}
	refuse(w, http.StatusNotFound, "no outbox "+name)
	return nil
}

// one calls next with the outlet that ?outbox= names, or the only one if the request names none.
func (a *adminHandler) one(next func(http.ResponseWriter, *http.Request, *outlet)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Query().Get("outbox")
		switch o := a.fleet.find(name); {
		case o != nil:
			next(w, r, o)
		case name == "":
			refuse(w, http.StatusBadRequest, "there are several outboxes: say which with ?outbox=NAME")
		default:
			refuse(w, http.StatusNotFound, "no outbox "+name)
		}
	}
}

type health struct {
	OK     bool       `json:"ok"`
	Role   relay.Role `json:"role,omitempty"` // set only if there is a single outbox
	Reason string     `json:"reason,omitempty"`

	Outboxes []outboxHealth `json:"outboxes,omitempty"`
}

type outboxHealth struct {
	Outbox string     `json:"outbox"`
	OK     bool       `json:"ok"`
	Role   relay.Role `json:"role"`
	Reason string     `json:"reason,omitempty"`
}

// ready answers every request with the status; it gives the reasons only to a request that may read. To name one outbox, a request
// must be one that may read too, or it could find out the names.
func (a *adminHandler) ready(w http.ResponseWriter, r *http.Request) {
	may, refused := a.mayRead(r)
	if !may && r.URL.Query().Has("outbox") {
		refused(w)
		return
	}
	all := a.outlets(w, r)
	if all == nil {
		return
	}
	h := health{OK: true}
	var reasons []string
	for _, o := range all {
		one := outboxHealth{Outbox: o.plan.name, OK: true, Role: o.current().Status().Role}
		if err := o.ready(); err != nil {
			one.OK, one.Reason, h.OK = false, err.Error(), false
			reason := one.Reason
			if len(all) > 1 {
				reason = one.Outbox + ": " + reason
			}
			reasons = append(reasons, reason)
		}
		h.Outboxes = append(h.Outboxes, one)
	}
	if len(all) == 1 {
		h.Role = h.Outboxes[0].Role
	}
	h.Reason = strings.Join(reasons, "; ")
	if !may {
		h = health{OK: h.OK}
	}
	code := http.StatusOK
	if !h.OK {
		code = http.StatusServiceUnavailable
	}
	answer(w, code, h)
}

type runStatus struct {
	Ready    bool           `json:"ready"`
	Outboxes []outletStatus `json:"outboxes"`
}

type outletStatus struct {
	Outbox    string          `json:"outbox"`
	Ready     bool            `json:"ready"`
	Reason    string          `json:"reason,omitempty"`
	Relay     relay.Status    `json:"relay"`
	Rows      *rowStatus      `json:"rows,omitempty"`
	RowsError string          `json:"rows_error,omitempty"`
	Replay    *replayProgress `json:"replay,omitempty"`
}

func (a *adminHandler) status(w http.ResponseWriter, r *http.Request) {
	all := a.outlets(w, r)
	if all == nil {
		return
	}
	s := runStatus{Ready: true}
	for _, o := range all {
		one := outletStatus{
			Outbox: o.plan.name, Ready: true, Relay: o.status(), Replay: o.replay.last(),
		}
		if err := o.ready(); err != nil {
			one.Ready, one.Reason, s.Ready = false, err.Error(), false
		}
		if rows, err := o.statistics().read(r.Context()); err != nil {
			one.RowsError = err.Error()
		} else {
			one.Rows = rowsOf(rows.Stats)
		}
		s.Outboxes = append(s.Outboxes, one)
	}
	answer(w, http.StatusOK, s)
}

func (a *adminHandler) each(action string, do func(*relay.Relay)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		all := a.outlets(w, r)
		if all == nil {
			return
		}
		names := make([]string, len(all))
		for n, o := range all {
			do(o.current())
			names[n] = o.plan.name
		}
		a.log.Info().Str("action", action).Strs("outboxes", names).Str("from", r.RemoteAddr).Msg("admin")
		answer(w, http.StatusOK, map[string][]string{"outboxes": names})
	}
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false) // an escaped character has six bytes, and a page of rows megabytes of text
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(body) // it fails only if the client is gone
}

func (o *outlet) statistics() *statistics {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stats
}

func (o *outlet) desk() desk.Desk { return desk.Desk{DB: o.statistics().pool, Table: o.plan.table} }

// statistics reads the outbox's figures on demand and caches them for statsFor.
type statistics struct {
	pool *pgxpool.Pool
	of   desk.Table

	mu   sync.Mutex
	at   time.Time
	last rowStats
	err  error
}

type rowStats struct {
	retention.Stats
	Bytes  int64 // payload bytes of the rows that Pending counts
	mapped bool  // the table has a mapping: only its failed rows are known
	// records is nil if the role may not read troupe.retention.
	records *retention.RecordStats
}

const (
	statsFor   = 2 * time.Second
	statsLimit = 2 * time.Second
)

// read reads the figures. They are stored for other requests, too, so the queries go on when ctx is cancelled.
func (s *statistics) read(ctx context.Context) (rowStats, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.at) < statsFor {
		return s.last, s.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statsLimit)
	defer cancel()
	s.last = rowStats{mapped: s.of.Mapping != nil}
	if s.last.mapped {
		s.last.Stats, s.err = readMappedStats(ctx, s.pool, s.of)
		s.at = time.Now()
		return s.last, s.err
	}
	s.last.Stats, s.err = retention.ReadStats(ctx, s.pool)
	if s.err == nil {
		s.last.Bytes, s.err = waitingBytes(ctx, s.pool)
	}
	if records, err := retention.ReadRecords(ctx, s.pool); err == nil {
		s.last.records = &records
	}
	s.at = time.Now()
	return s.last, s.err
}

// waitingBytes sums the sizes of the payloads of up to 100,000 rows. It reads no payload: the length of a payload that is stored
// out of line (TOAST) is in its row.
func waitingBytes(ctx context.Context, pool *pgxpool.Pool) (bytes int64, err error) {
	err = pool.QueryRow(ctx, `
		SELECT coalesce(sum(octet_length(payload)), 0)::bigint
		FROM (SELECT payload FROM troupe.outbox LIMIT 100000) AS rows`).Scan(&bytes)
	return bytes, err
}

type endpoints struct {
	server *http.Server
	ended  chan error
}

func serve(l net.Listener, handler http.Handler) *endpoints {
	e := &endpoints{
		server: &http.Server{
			Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
			WriteTimeout: time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		},
		ended: make(chan error, 1),
	}
	go func() { e.ended <- e.server.Serve(door.Limit(l)) }()
	return e
}

func (e *endpoints) stop(ctx context.Context) error {
	err := e.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = e.server.Close()
	}
	if ended := <-e.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
