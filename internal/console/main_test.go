package console

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/console/stage"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const token = "a token of some length"

// desk is a console over a stage, used with the token as a program does.
type desk struct {
	*stage.Stage
	t   testing.TB
	c   *Console
	cfg Config

	token string // that programs send; "": reads have none, and actions have the one of Config
}

func newDesk(t testing.TB, change ...func(*Config)) *desk {
	s := stage.New(t)
	d := &desk{Stage: s, t: t, cfg: Config{
		Databases: []Database{{"order", asOperator(t, s.Pool)}}, Token: token, Log: testkit.Logger(t),
	}}
	for _, c := range change {
		c(&d.cfg)
	}
	var err error
	d.c, err = New(t.Context(), d.cfg)
	require.NoError(t, err)
	d.c.limit = testLimit
	t.Cleanup(d.c.Close)
	return d
}

// testLimit replaces askLimit, which a busy machine can exceed.
const testLimit = 3 * time.Minute

// asOperator returns a pool with the documented rights of a console that acts, so that each test here shows that they are enough.
func asOperator(t testing.TB, pool *pgxpool.Pool) *pgxpool.Pool {
	return grantstest.New(t, pool, grants.Viewer, grants.Operator, grants.SagaOperator, grants.RelayOperator).Pool()
}

// asViewer returns a pool with the documented rights of a console that only shows.
func asViewer(t testing.TB, pool *pgxpool.Pool) *pgxpool.Pool {
	return grantstest.New(t, pool, grants.Viewer).Pool()
}

// twice adds an empty database.
func twice(t testing.TB) func(*Config) {
	return func(c *Config) {
		c.Databases = append(c.Databases, Database{"empty", asViewer(t, testkit.Database(t))})
	}
}

// letters writes two causes of dead letters, and a held key.
func (d *desk) letters() (ids []string) {
	currency := stage.Letter{
		Key: "o-1", Type: "ChargeCard", Class: "permanent", Error: `order o-1: currency "EURO" is not known`, Payload: `{"order_id": "o-1", "currency": "EURO"}`,
	}
	for i := range 3 {
		ids = append(ids, d.Dead(i, currency).String())
	}
	d.Dead(3, stage.Letter{Key: "o-7", Type: "ChargeCard", Class: "timeout", Error: "charge card: no answer in 5s", Payload: `{"order_id": "o-7"}`})
	d.Hold(9, 2, stage.Letter{Key: "o-9", Type: "ChargeCard", Class: "transient", Error: "bank answered 503", Payload: `{"order_id": "o-9"}`})
	return ids
}

// parked starts a saga that is parked since inventory gives up.
func (d *desk) parked(key string) (id string) {
	d.Fail(key, "ReserveStock", "the warehouse answers 503")
	return d.Order(key, saga.Parked)
}

func (d *desk) serve(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	d.c.ServeHTTP(w, r)
	return w
}

// page returns a page as a browser without JavaScript gets it.
func (d *desk) page(address string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, address, nil)
	r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	return d.serve(r)
}

// html returns the text of a page that must exist.
func (d *desk) html(address string) string {
	d.t.Helper()
	w := d.page(address)
	require.Equal(d.t, http.StatusOK, w.Code, "%s: %s", address, w.Body)
	return w.Body.String()
}

func (d *desk) get(address string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, address, nil)
	r.Header.Set("Accept", "application/json")
	if d.token != "" {
		r.Header.Set("Authorization", "Bearer "+d.token)
	}
	return d.serve(r)
}

// facts returns a page's facts as a program reads them.
func facts[T any](d *desk, address string) (f T) {
	d.t.Helper()
	w := d.get(address)
	require.Equal(d.t, http.StatusOK, w.Code, "%s: %s", address, w.Body)
	require.NoError(d.t, json.Unmarshal(w.Body.Bytes(), &f), w.Body)
	return f
}

// post sends an action as a program does.
func (d *desk) post(address string, form url.Values) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, address, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Authorization", "Bearer "+cmp.Or(d.token, token))
	if !form.Has("actor") {
		form.Set("actor", "ann")
		return d.post(address, form)
	}
	return d.serve(r)
}

// at returns an address.
func at(page string, values ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(values); i += 2 {
		q.Set(values[i], values[i+1])
	}
	return page + "?" + q.Encode()
}

func form(values ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(values); i += 2 {
		q.Set(values[i], values[i+1])
	}
	return q
}

func decoded[T any](t testing.TB, text []byte) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal(text, &v), string(text))
	return v
}
