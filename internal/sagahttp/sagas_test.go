package sagahttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/sagahttp"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const trip = `{"saga":"trip","version":1,"key":"trip","data":{"trip":"string","nights":"int","price":"double","room":"string"},
"steps":[{"name":"hotel","command":{"hop":"hotel","type":"BookRoom","input":{"nights":"data.nights"}},
"success":[{"event":"RoomBooked","set":{"room":"event.room"}}],"failure":[{"event":"HotelFull","reason":"'full'"}],"timeout":"1h",
"compensation":{"command":{"hop":"hotel","type":"CancelRoom"},"success":[{"event":"RoomCancelled"}],"timeout":"1h"}}],
"cancel":{"operator":true}}`

type (
	BookRoom struct {
		Nights int `json:"nights"`
	}
	RoomBooked struct {
		Room string `json:"room"`
	}
	HotelFull     struct{}
	CancelRoom    struct{}
	RoomCancelled struct{}
)

// agency serves the saga trip over HTTP, with a hotel that answers once it is open.
type agency struct {
	t       *testing.T
	pool    *pgxpool.Pool
	url     string
	handler http.Handler
	open    func() // lets the hotel answer
	close   context.CancelFunc
}

func newAgency(t *testing.T, token string) *agency {
	t.Helper()
	d, err := saga.Parse([]byte(trip))
	require.NoError(t, err)
	pool, flow := testkit.Database(t), testkit.Flow(t)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	opened := make(chan struct{})
	a := &agency{t: t, pool: pool, open: sync.OnceFunc(func() { close(opened) })}
	run := func(hop string, prepare func(*participant.Participant)) {
		p, err := participant.New(participant.Config{
			Pool: pool, Local: true, Hop: topics.MustHop(flow, hop), Concurrency: 4, Log: testkit.Logger(t),
		})
		require.NoError(t, err)
		prepare(p)
		running.Go(func() { require.NoError(t, p.Run(ctx)) })
	}
	var waits context.Context
	waits, a.close = context.WithCancel(context.Background())
	h, err := sagahttp.New(waits, sagahttp.Config{Pool: pool, Definitions: []*saga.Definition{d}, Token: token, Log: testkit.Logger(t)})
	require.NoError(t, err)
	server := httptest.NewServer(h)
	a.url, a.handler = server.URL, h
	status, got, _ := a.ask("GET", "/sagas/trip/t-0", "", "Authorization", "Bearer "+token)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "starting: send it again", got["error"])
	run("hotel", func(p *participant.Participant) {
		participant.Handle(p, func(ctx context.Context, _ pgx.Tx, c participant.Command[BookRoom]) (participant.Outcome, error) {
			select {
			case <-opened:
			case <-ctx.Done():
				return participant.Outcome{}, ctx.Err()
			}
			if c.Body.Nights > 9 {
				return participant.Refuse(HotelFull{}), nil
			}
			return participant.Succeed(RoomBooked{"r-7"}), nil
		})
		participant.Handle(p, func(context.Context, pgx.Tx, participant.Command[CancelRoom]) (participant.Outcome, error) {
			return participant.Succeed(RoomCancelled{}), nil
		})
	})
	run("trip", func(p *participant.Participant) {
		c, err := coordinator.New(t.Context(), coordinator.Config{Participant: p, Pool: pool, Definitions: []*saga.Definition{d}, Log: testkit.Logger(t)})
		require.NoError(t, err)
		h.Coordinate(c)
	})
	t.Cleanup(func() { a.close(); server.Close(); stop(); running.Wait() })
	return a
}

func (a *agency) ask(method, path, body string, header ...string) (status int, got map[string]any, h http.Header) {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, strings.NewReader(body))
	require.NoError(a.t, err)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w, err := http.DefaultClient.Do(r)
	require.NoError(a.t, err)
	defer func() { require.NoError(a.t, w.Body.Close()) }()
	require.NoError(a.t, json.NewDecoder(w.Body).Decode(&got))
	return w.StatusCode, got, w.Header
}

func (a *agency) count(sql string) (n int) {
	a.t.Helper()
	require.NoError(a.t, a.pool.QueryRow(a.t.Context(), sql).Scan(&n))
	return n
}

func TestARequestStartsASagaAndWaitsForItsEnd(t *testing.T) {
	t.Parallel()
	a := newAgency(t, "")
	a.open()
	status, got, h := a.ask("POST", "/sagas/trip/t%2F1", `{"nights": 2, "price": 10.0}`, "Prefer", "respond-async, wait=90")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "wait=30", h.Get("Preference-Applied"))
	require.Equal(t, map[string]any{
		"id": "trip/t/1", "status": "completed", "data": map[string]any{"trip": "t/1", "nights": 2.0, "price": 10.0, "room": "r-7"},
	}, got)
	_, got, _ = a.ask("POST", "/sagas/trip/t-2", `{"nights": 10}`, "Prefer", "wait=30")
	require.Equal(t, "compensated", got["status"])
	require.Equal(t, "full", got["reason"])
}

func TestASagaThatHasNotEndedInTimeHasALocation(t *testing.T) {
	t.Parallel()
	a := newAgency(t, "")
	for _, wait := range []string{"wait=0", "wait=1", "wait=soon", ""} {
		status, got, h := a.ask("POST", "/sagas/trip/ä 1", `{"nights": 2}`, "Prefer", wait)
		require.Equal(t, http.StatusAccepted, status)
		require.Equal(t, "running", got["status"])
		require.Equal(t, "/sagas/trip/%C3%A4%201", h.Get("Location"))
		require.Equal(t, "1", h.Get("Retry-After"))
	}
	status, _, _ := a.ask("GET", "/sagas/trip/%C3%A4%201", "")
	require.Equal(t, http.StatusAccepted, status)
	a.open()
	status, got, _ := a.ask("GET", "/sagas/trip/%C3%A4%201", "", "Prefer", "wait=30")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "r-7", got["data"].(map[string]any)["room"])
}

// In TestARepeatedRequestStartsNothingTwice many requests come at once.
func TestARepeatedRequestStartsNothingTwice(t *testing.T) {
	t.Parallel()
	a := newAgency(t, "")
	a.open()
	var mu sync.Mutex
	fresh := 0
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			status, got, _ := a.ask("POST", "/sagas/trip/t-1", `{"nights": 2}`, "Prefer", "wait=30")
			require.Equal(t, http.StatusOK, status)
			mu.Lock()
			defer mu.Unlock()
			if got["existed"] == nil {
				fresh++
			}
		})
	}
	all.Wait()
	require.Equal(t, 1, fresh)
	require.Equal(t, 1, a.count("SELECT count(*) FROM troupe.sagas"))
	status, got, _ := a.ask("POST", "/sagas/trip/t-1", `{"nights": 3}`)
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, map[string]any{
		"id": "trip/t-1", "existed": true, "error": "saga trip/t-1 was started with other data: the key belongs to another request",
	}, got)
}

func TestASagaIsCancelledOverHTTP(t *testing.T) {
	t.Parallel()
	a := newAgency(t, "")
	by := `{"actor": "shop", "reason": "the customer has called"}`
	status, got, _ := a.ask("POST", "/sagas/trip/t-1/cancel", by)
	require.Equal(t, http.StatusNotFound, status)
	require.Equal(t, "there is no saga trip/t-1", got["error"])
	a.ask("POST", "/sagas/trip/t-1", `{"nights": 2}`)
	status, got, _ = a.ask("POST", "/sagas/trip/t-1/cancel", `{"actor": "shop"}`)
	require.Equal(t, http.StatusUnprocessableEntity, status, got)
	status, got, _ = a.ask("POST", "/sagas/trip/t-1/cancel", by)
	require.Equal(t, http.StatusAccepted, status)
	require.Equal(t, "accepted", got["cancel"])
	a.open()
	for range 2 { // the caller has not got the response and repeats its request, while the saga goes back and after its end
		status, got, _ = a.ask("POST", "/sagas/trip/t-1/cancel", by, "Prefer", "wait=30")
		require.Equal(t, http.StatusOK, status, got)
		require.Equal(t, "accepted", got["cancel"])
	}
	a.ask("POST", "/sagas/trip/t-2", `{"nights": 2}`, "Prefer", "wait=30")
	status, got, _ = a.ask("POST", "/sagas/trip/t-2/cancel", by)
	require.Equal(t, http.StatusConflict, status, got)
	status, got, _ = a.ask("GET", "/sagas/trip/t-1", "", "Prefer", "wait=30")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "compensated", got["status"])
	require.Equal(t, "the customer has called", got["reason"])
}

func TestARequestThatCannotBeServedSaysWhy(t *testing.T) {
	t.Parallel()
	a := newAgency(t, "a-token-of-16-chars")
	right := "Bearer a-token-of-16-chars"
	for _, c := range []struct {
		method, path, body, token, kind string
		status                          int
		text                            string
	}{
		{"POST", "/sagas/trip/t-1", "{}", "", "application/json", 401, "want the header Authorization"},
		{"POST", "/sagas/order/t-1", "{}", right, "application/json", 404, `there is no saga "order"`},
		{"GET", "/sagas/trip/t-1", "", right, "application/json", 404, "there is no saga trip/t-1"},
		{"POST", "/sagas/trip/%FF", "{}", right, "application/json", 400, "the key:"},
		{"POST", "/sagas/trip/t-1", "{}", right, "text/plain", 415, "want Content-Type: application/json"},
		{"POST", "/sagas/trip/t-1", "[]", right, "application/json", 400, "the variables: want a JSON object"},
		{"POST", "/sagas/trip/t-1", `{"nights": [` + strings.Repeat("1e1000,", 20_000) + `1]}`, right, "application/json", 400, "the variables: nights: the numbers are more than"},
		{"POST", "/sagas/trip/t-1", `{"nights": "two"}`, right, "application/json", 422, `variable nights is int: it cannot be "two"`},
		{"POST", "/sagas/trip/t-1", `{"trip": "t-2"}`, right, "application/json", 422, "the variable trip is the key"},
		{"POST", "/sagas/trip/t-1", `{"trip": "` + strings.Repeat("x", 1<<20) + `"}`, right, "application/json", 413, "more than 1048576 bytes"},
	} {
		status, got, _ := a.ask(c.method, c.path, c.body, "Authorization", c.token, "Content-Type", c.kind)
		require.Equal(t, c.status, status, "%+v: %v", c, got)
		require.Contains(t, got["error"], c.text)
	}
	require.Zero(t, a.count("SELECT count(*) FROM troupe.sagas"))
}

// When the program stops, a request that waits is answered at once.
func TestAWaitEndsWhenTheProgramStops(t *testing.T) {
	t.Parallel()
	a := newAgency(t, "")
	a.ask("POST", "/sagas/trip/t-1", `{"nights": 2}`)
	done := make(chan int, 1)
	go func() {
		status, _, _ := a.ask("GET", "/sagas/trip/t-1", "", "Prefer", "wait=30")
		done <- status
	}()
	a.close()
	require.Equal(t, http.StatusAccepted, <-done)
}

// An unread is the writer of a response whose client does not read.
type unread struct {
	*httptest.ResponseRecorder
	began chan<- struct{}
	end   <-chan struct{}
}

func (u unread) Write(b []byte) (int, error) {
	u.began <- struct{}{}
	<-u.end
	return u.ResponseRecorder.Write(b)
}

// TestSomeResponsesAtOnceMayBeLarge: eight clients do not read their large responses. Small sagas are served meanwhile.
func TestSomeResponsesAtOnceMayBeLarge(t *testing.T) {
	t.Parallel()
	a := newAgency(t, "")
	long := fmt.Sprintf(`{"nights": 1, "room": %q}`, strings.Repeat("r", 40<<10))
	status, got, h := a.ask("POST", "/sagas/trip/long", long, "Prefer", "wait=1")
	require.Equal(t, http.StatusAccepted, status, got)
	require.Equal(t, "wait=1", h.Get("Preference-Applied"))
	began, end := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			w := unread{httptest.NewRecorder(), began, end}
			a.handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/sagas/trip/long", nil))
			if w.Code != http.StatusAccepted {
				t.Error(w.Code)
			}
		})
	}
	for range 8 {
		<-began
	}
	status, got, _ = a.ask("GET", "/sagas/trip/long", "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "busy with other large requests: send it again", got["error"])
	status, _, _ = a.ask("POST", "/sagas/trip/small", `{"nights": 1}`)
	require.Equal(t, http.StatusAccepted, status)
	close(end)
	all.Wait()
	status, _, _ = a.ask("GET", "/sagas/trip/long", "")
	require.Equal(t, http.StatusAccepted, status)
}

// TestSomeRequestsMayWaitForLargeSagas: others get the state of the saga at once.
func TestSomeRequestsMayWaitForLargeSagas(t *testing.T) {
	t.Parallel()
	a := newAgency(t, "")
	long := fmt.Sprintf(`{"nights": 1, "room": %q}`, strings.Repeat("r", 40<<10))
	status, _, _ := a.ask("POST", "/sagas/trip/long", long)
	require.Equal(t, http.StatusAccepted, status)
	type answer struct {
		status int
		waited string
	}
	answers := make(chan answer, 9)
	for range 9 {
		go func() {
			status, _, h := a.ask("GET", "/sagas/trip/long", "", "Prefer", "wait=30")
			answers <- answer{status, h.Get("Preference-Applied")}
		}()
	}
	require.Equal(t, answer{http.StatusAccepted, ""}, <-answers)
	a.open()
	for range 8 {
		require.Equal(t, answer{http.StatusOK, "wait=30"}, <-answers)
	}
}

// TestSomeRequestsAtOnceMayBeLarge: eight requests send the first half of a large body. Small ones are served meanwhile.
// The server sends 100 Continue once it reads a body: from then on the request counts as large.
func TestSomeRequestsAtOnceMayBeLarge(t *testing.T) {
	t.Parallel()
	a := newAgency(t, "")
	a.open()
	ends := make([]*io.PipeWriter, 8)
	statuses, read := make(chan int, len(ends)), make(chan struct{}, len(ends))
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { read <- struct{}{} }})
	for i := range ends {
		var body io.Reader
		body, ends[i] = io.Pipe()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s/sagas/trip/large-%d", a.url, i), body)
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Expect", "100-continue")
		go func() {
			response, err := http.DefaultClient.Do(r)
			if err == nil {
				statuses <- response.StatusCode
				err = response.Body.Close()
			}
			if err != nil {
				t.Error(err)
			}
		}()
	}
	for _, end := range ends {
		_, err := io.WriteString(end, `{"nights":`)
		require.NoError(t, err)
		<-read
	}
	large := `{"nights": 1` + strings.Repeat(" ", 100<<10) + "}"
	status, got, _ := a.ask("POST", "/sagas/trip/large", large)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "busy with other large requests: send it again", got["error"])
	long := `{"nights": 1, "more": [` + strings.Repeat("1e1000,", 50) + "1]}" // each number is a thousand digits when it is decoded
	status, got, _ = a.ask("POST", "/sagas/trip/long", long)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "busy with other large requests: send it again", got["error"])
	many := `{"more": [` + strings.Repeat("1e1000,", 4500) + "1]}" // decoded, it is refused with status 400
	status, got, _ = a.ask("POST", "/sagas/trip/many", many)
	require.Equal(t, http.StatusServiceUnavailable, status, "%v: the numbers were decoded", got)
	empty := `{"nights": 1, "more": [` + strings.Repeat("{},", 8000) + "1]}" // an empty object takes 60 bytes when it is decoded
	status, _, _ = a.ask("POST", "/sagas/trip/empty", empty)
	require.Equal(t, http.StatusServiceUnavailable, status)
	status, _, _ = a.ask("POST", "/sagas/trip/small", `{"nights": 1}`)
	require.Equal(t, http.StatusAccepted, status)
	for _, end := range ends {
		_, err := io.WriteString(end, "1}")
		require.NoError(t, err)
		require.NoError(t, end.Close())
		require.Less(t, <-statuses, 300)
	}
	status, _, _ = a.ask("POST", "/sagas/trip/large", large)
	require.Less(t, status, 300)
}
