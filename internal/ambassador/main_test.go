package ambassador_test

import (
	"encoding/json"
	"io"
	"log" //nolint:depguard // httptest and net/http take no other
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ambassador"
	"github.com/troupe-go/troupe/internal/short"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) {
	short.Only(
		"Example", "ExampleMeaning", "TestMeaning", "TestACallIsARequestAndItsAnswerAnEvent", "TestNoRedirectIsFollowed",
	)
	testkit.Main(m)
}

// service is a service that speaks HTTP. It records its requests.
type service struct {
	*httptest.Server
	mu    sync.Mutex
	asked []*http.Request
	said  []string // their bodies
}

// serve starts a service. answer is called for each request, with the number of earlier requests.
func serve(t testing.TB, answer func(w http.ResponseWriter, r *http.Request, before int)) *service {
	s := &service{}
	s.Server = httptest.NewServer(s.handler(answer))
	t.Cleanup(s.Close)
	return s
}

func (s *service) handler(answer func(w http.ResponseWriter, r *http.Request, before int)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		before := len(s.asked)
		s.asked, s.said = append(s.asked, r), append(s.said, string(body))
		s.mu.Unlock()
		answer(w, r, before)
	})
}

func (s *service) requests() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*http.Request(nil), s.asked...)
}

// keys returns the idempotency keys of all requests.
func (s *service) keys() (all []string) {
	for _, r := range s.requests() {
		all = append(all, r.Header.Get("Idempotency-Key"))
	}
	return all
}

func status(code int) func(http.ResponseWriter, *http.Request, int) {
	return func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(code) }
}

// quiet returns a logger that discards the errors of servers whose clients disconnect.
func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// stage runs an ambassador for the service at url.
func stage(t testing.TB, url string, change ...func(*ambassador.Config, *participant.Config)) *testkit.Stage {
	t.Helper()
	cfg := ambassador.Config{BaseURL: url}
	with := participant.Config{Immediate: -1, Retry: retry.Policy{Initial: time.Millisecond, Cap: 2 * time.Millisecond, Attempts: 4}}
	for _, c := range change {
		c(&cfg, &with)
	}
	a, err := ambassador.New(cfg)
	require.NoError(t, err)
	return testkit.NewStage(t, testkit.StageConfig{
		Hop: "hotel", Participant: with,
		Handlers: func(_ *testkit.Stage, p *participant.Participant) { a.Handle(p) },
	})
}

// call returns a command as a saga sends it.
func call(s *testkit.Stage, method, path, body string) envelope.Message {
	c := ambassador.Call{Method: method, Path: path}
	if body != "" {
		c.Body = json.RawMessage(body)
	}
	m := s.Command("o-1", c)
	m.SagaID, m.SagaStep, m.SagaOperation = "order/"+m.ID, "hotel", "forward" // a saga of its own
	m.TraceParent, m.TraceState = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "vendor=1"
	return m
}

func done(s *testkit.Stage, m envelope.Message) ambassador.CallDone {
	return testkit.Await[ambassador.CallDone](s, m).Body
}
