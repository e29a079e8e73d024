package console

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/internal/door"
	"github.com/troupe-go/troupe/internal/formats"
	"github.com/troupe-go/troupe/schemas"
)

// A Database is the database of one service.
type Database struct {
	// Name is the service's name, for pages and addresses. Letters, digits, dots, dashes and underscores, at most 63.
	Name string
	Pool *pgxpool.Pool
}

// Config configures a Console. Databases are required.
type Config struct {
	// Databases are the services' databases, in the order in which they are shown. A few connections of each are used at a
	// time.
	Databases []Database
	// Brokers (host:port) and Flow, the first part of the flow's topic names, say where to find messages that were published.
	// Without brokers only messages in the databases are found.
	Brokers []string
	Flow    string
	// Watch connects to the database of a watcher (troupe watch), whose flows are shown. Nil: no flows are shown.
	Watch *pgxpool.Pool
	// Registry has the schemas of Avro payloads. Nil: such payloads are shown as hex, and cannot be edited.
	Registry *schemas.Registry

	// Access names users with roles. It excludes Token, and requires a user for reading, too. Nil: Token.
	Access *Access
	// Token is required for actions: at least 16 bytes. Its users are Admin of all databases, and type a name that nothing proves. "":
	// actions are disabled, unless there is Access.
	Token string
	// Private makes the token required for reading too.
	Private bool
	// HTTPS declares that browsers reach the console by https only, through a proxy that ends TLS: the cookie of a session is then
	// Secure. It is Secure without HTTPS, too, where this process itself serves TLS.
	HTTPS bool
	// Hosts are the host names of the console, without port. A request for another name is refused, unless the host is a
	// loopback IP address. Nil: any name.
	Hosts []string
	// Path is the path at which the console is mounted, such as "/console". Default: the root.
	Path string

	Log zerolog.Logger
	// Kafka options are applied after the package's own, so they override them.
	Kafka []kgo.Opt
}

// A Console is an http.Handler. It may be used concurrently. Close it when its server stops.
type Console struct {
	cfg       Config
	sources   []*source
	pages     map[string]*page // by path
	templates map[string]*template.Template
	files     map[string][]byte // the static ones, by name
	accounts  atomic.Pointer[accounts]
	sessions  *sessions
	attempts  door.Attempts // wrong tokens
	secrets   door.Attempts // wrong secrets of the proxy
	guesses   *guesses
	works     *works
	handler   http.Handler
	streams   streams
	sending   sending
	looks     *looks
	turns     turns
	payloads  chan struct{} // one for each request that holds payloads
	limit     time.Duration // of reading one page: askLimit
}

// source is a database with its admin clients.
type source struct {
	Database
	repairs *repair.Desk
	sagas   *sagadesk.Desk
}

const (
	askLimit   = 10 * time.Second // to read one page
	bodyLimit  = 9 << 20          // bytes of the form that edits a payload
	formLimit  = 256 << 10        // bytes of another form: an input of 64 KiB has up to three times as many in a form
	leastToken = 16
)

var databaseName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func (cfg Config) validate() error {
	if len(cfg.Databases) == 0 {
		return errors.New("no databases")
	}
	var names []string
	for _, d := range cfg.Databases {
		switch {
		case !databaseName.MatchString(d.Name):
			return fmt.Errorf("database %q: a name has letters, digits, dots, dashes and underscores, at most 63", d.Name)
		case d.Pool == nil:
			return fmt.Errorf("database %s without a pool", d.Name)
		case slices.Contains(names, d.Name):
			return fmt.Errorf("two databases are called %s", d.Name)
		}
		names = append(names, d.Name)
	}
	switch {
	case cfg.Token != "" && len(cfg.Token) < leastToken:
		return fmt.Errorf("a token of %d bytes: want at least %d", len(cfg.Token), leastToken)
	case cfg.Token != "" && cfg.Access != nil:
		return errors.New("a token for all and users with roles: want one of both")
	case cfg.Private && cfg.Token == "" && cfg.Access == nil:
		return errors.New("private without a token: no request could be authorized")
	case cfg.Path != "" && (!strings.HasPrefix(cfg.Path, "/") || strings.HasSuffix(cfg.Path, "/")):
		return fmt.Errorf("path %q: want one like /console", cfg.Path)
	case len(cfg.Brokers) > 0 && cfg.Flow == "":
		return errors.New("brokers without a flow to look at")
	case cfg.Access != nil:
		return cfg.Access.validate(names)
	}
	return nil
}

// New returns a Console. It does not connect to the databases and brokers.
func New(ctx context.Context, cfg Config) (*Console, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	cfg.Private = cfg.Private || cfg.Access != nil
	c := &Console{
		cfg: cfg, pages: make(map[string]*page), sessions: newSessions(), works: newWorks(),
		guesses:  newGuesses(cfg.Log),
		payloads: make(chan struct{}, mostPayloads), limit: askLimit,
	}
	c.accounts.Store(newAccounts(cfg))
	c.looks = newLooks(c.works)
	var codec *schemas.Codec
	if cfg.Registry != nil {
		var err error
		if codec, err = schemas.New(ctx, schemas.Config{Registry: cfg.Registry, Formats: formats.All()}); err != nil {
			return nil, fmt.Errorf("console: %w", err)
		}
	}
	for _, d := range cfg.Databases {
		s, err := newSource(d, codec)
		if err != nil {
			return nil, fmt.Errorf("console: %w", err)
		}
		c.sources = append(c.sources, s)
	}
	var err error
	if c.templates, err = c.parse(); err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	if c.files, err = readStatic(); err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	c.handler = c.routes()
	return c, nil
}

func newSource(d Database, codec *schemas.Codec) (*source, error) {
	repairing, deciding := repair.Config{Pool: d.Pool}, sagadesk.Config{Pool: d.Pool}
	if codec != nil { // a nil pointer in an interface is not nil
		repairing.Codec, deciding.Schemas = codec, codec
	}
	repairs, err := repair.New(repairing)
	if err != nil {
		return nil, err
	}
	sagas, err := sagadesk.New(deciding)
	return &source{d, repairs, sagas}, err
}

// Close ends live pages, stops the work that is under way, and waits for it. Its completed part stays. Close may be called
// again.
func (c *Console) Close() { c.works.close() }

func (c *Console) routes() http.Handler {
	mux := http.NewServeMux()
	for _, p := range pages {
		at := p.path
		if at == "/" {
			at = "/{$}"
		}
		c.pages[p.path] = &p
		mux.HandleFunc("GET "+at, func(w http.ResponseWriter, r *http.Request) { c.show(w, r, &p) })
		if p.act != nil {
			mux.HandleFunc("POST "+at, func(w http.ResponseWriter, r *http.Request) { c.do(w, r, &p) })
		}
	}
	mux.HandleFunc("GET /dead-letter/payload", c.download)
	mux.HandleFunc("GET /sign-in", c.signInPage)
	mux.HandleFunc("POST /sign-in", c.signIn)
	mux.HandleFunc("POST /sign-out", c.signOut)
	mux.HandleFunc("GET /live", c.live)
	mux.HandleFunc("GET /openapi.json", c.openAPI)
	mux.HandleFunc("GET /static/{name}", c.static)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		c.fail(w, r, refuse(http.StatusNotFound, "there is no such page: %s", r.URL.Path))
	})
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.fail(w, r, refuse(http.StatusForbidden, "an action cannot be asked for by another site"))
	}))
	return http.StripPrefix(c.cfg.Path, protection.Handler(mux))
}

// policy allows a page only resources that this handler serves.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'"

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept, Cookie")
	if !c.ours(r.Host) {
		c.fail(w, r, refuse(http.StatusMisdirectedRequest, "the console is not called %s here", r.Host))
		return
	}
	if embeds(r) {
		c.fail(w, r, refuse(http.StatusForbidden, "another site can link to a page, and not embed it"))
		return
	}
	if r.URL.Path == c.cfg.Path && c.cfg.Path != "" {
		http.Redirect(w, r, c.cfg.Path+"/", http.StatusMovedPermanently)
		return
	}
	if c.tooOften(w, r) {
		return
	}
	c.handler.ServeHTTP(w, r)
}

// embeds reports whether a page of another site requests a part of itself, such as an image or a frame. It could not read the answer, but it
// could keep the console busy.
func embeds(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
	default: // this site, a person, or a program
		return false
	}
	to := r.Header.Get("Sec-Fetch-Dest")
	return r.Header.Get("Sec-Fetch-Mode") != "navigate" || to != "" && to != "document"
}

// ours reports whether a request's host names this console.
func (c *Console) ours(host string) bool {
	return c.cfg.Hosts == nil || door.Called(host, c.cfg.Hosts...)
}
