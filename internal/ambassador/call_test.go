package ambassador_test

import (
	"cmp"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ambassador"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/testkit"
)

func TestACallIsARequestAndItsAnswerAnEvent(t *testing.T) {
	t.Parallel()
	hotel := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"reservation_id": 12345678901234567890, "name": "<Ünal>"}`)
	})
	s := stage(t, hotel.URL+"/v1/", func(c *ambassador.Config, _ *participant.Config) {
		c.Header = http.Header{"authorization": {"Bearer secret-1"}, "X-Saga-Id": {"forged"}}
	})
	m := call(s, "POST", "/reservations/a%2Fb%20%C3%A9", `{"nights": 2}`)
	m.IdempotencyKey = "order/o-1/hotel/forward/1"
	s.Send(m)
	got := testkit.Await[ambassador.CallDone](s, m)
	require.Equal(t, 201, got.Body.Status)
	require.JSONEq(t, `{"reservation_id": 12345678901234567890, "name": "<Ünal>"}`, string(got.Body.Body))
	require.Equal(t, envelope.Success, got.Message.Outcome)
	require.Equal(t, m.SagaID+" hotel forward", got.Message.SagaID+" "+got.Message.SagaStep+" "+got.Message.SagaOperation)

	require.Len(t, hotel.requests(), 1)
	r := hotel.requests()[0]
	require.Equal(t, "POST /v1/reservations/a%2Fb%20%C3%A9", r.Method+" "+r.RequestURI)
	require.Equal(t, `{"nights":2}`, hotel.said[0])
	for name, want := range map[string]string{
		"Idempotency-Key": "order/o-1/hotel/forward/1", "X-Saga-Id": m.SagaID, "X-Saga-Step": "hotel", "X-Saga-Operation": "forward",
		"Traceparent": m.TraceParent, "Tracestate": m.TraceState, "Content-Type": "application/json", "Accept": "application/json",
		"Authorization": "Bearer secret-1", "User-Agent": "troupe-ambassador",
	} {
		require.Equal(t, []string{want}, r.Header[name], name)
	}
}

// TestAnEditedCommandIsAnotherRequest checks the key that the service gets of a command that an operator has edited and redriven.
func TestAnEditedCommandIsAnotherRequest(t *testing.T) {
	t.Parallel()
	edit := envelope.Header{Key: deadletter.HeaderRedriveEdit, Value: []byte("0123456789abcdef")}
	forged := envelope.Header{Key: deadletter.HeaderRedriveEdit, Value: []byte("\r\nX-Saga-Id: 7")}
	for name, c := range map[string]struct {
		key   string
		edit  envelope.Header
		added string
	}{
		"a key":                    {"order/o-1/hotel/forward/1", edit, "/0123456789abcdef"},
		"no key":                   {"", edit, "/0123456789abcdef"},
		"a value of another shape": {"order/o-1/hotel/forward/1", forged, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hotel := serve(t, status(http.StatusOK))
			s := stage(t, hotel.URL)
			m := call(s, "POST", "/rooms/7", `{"nights": 1}`)
			m.IdempotencyKey = c.key
			m.Extra = []envelope.Header{{Key: deadletter.HeaderRedrive, Value: []byte("1")}, c.edit}
			s.Send(m)
			require.Equal(t, c.key, testkit.Await[ambassador.CallDone](s, m).Message.IdempotencyKey, "it answers the original")
			require.Equal(t, []string{cmp.Or(c.key, m.ID) + c.added}, hotel.keys())
		})
	}
}

// TestTheServicesResponseIsKept: a body that is JSON is kept unchanged, anything else as a string.
func TestTheServicesResponseIsKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ says, body string }{
		"nothing":                {"", `null`},
		"a number":               {"7", `7`},
		"JSON with space":        {"\n {\"a\": [1, 2]}\n", `{"a":[1,2]}`},
		"text":                   {`<html>"no"</html>`, `"<html>\"no\"</html>"`},
		"text that is no UTF-8":  {"caf\xe9", `"caf�"`},
		"JSON that is no UTF-8":  {"{\"a\":\"\xe9\"}", `"{\"a\":\"�\"}"`},
		"two values are no JSON": {`{} {}`, `"{} {}"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hotel := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int) { _, _ = io.WriteString(w, c.says) })
			s := stage(t, hotel.URL)
			m := call(s, "GET", "/", "")
			s.Send(m)
			require.JSONEq(t, c.body, string(done(s, m).Body))
			require.Empty(t, hotel.said[0])
			require.Empty(t, hotel.requests()[0].Header["Content-Type"], "there is no content")
		})
	}
}

func TestA4xxIsARefusalWithItsReason(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ says, reason string }{
		"reason":         {`{"reason": "no room", "title": "Conflict"}`, "no room"},
		"problem detail": {`{"title": "Conflict", "detail": "the room is taken"}`, "the room is taken"},
		"problem title":  {`{"title": "Taken", "detail": 7}`, "Taken"},
		"neither":        {`["no"]`, "409 Conflict"},
		"nothing":        {``, "409 Conflict"},
		"a long one":     {`{"reason": "` + strings.Repeat("ä", 400) + `"}`, strings.Repeat("ä", 250)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hotel := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
				w.Header().Set("Retry-After", "3600") // has no effect: a refusal is not retried
				w.WriteHeader(http.StatusConflict)
				_, _ = io.WriteString(w, c.says)
			})
			s := stage(t, hotel.URL)
			m := call(s, "DELETE", "/reservations/7", "")
			s.Send(m)
			got := testkit.Await[ambassador.CallRefused](s, m)
			require.Equal(t, envelope.Failure, got.Message.Outcome)
			require.Equal(t, 409, got.Body.Status)
			require.Equal(t, c.reason, got.Body.Reason)
			if c.says == "" {
				c.says = "null"
			}
			require.JSONEq(t, c.says, string(got.Body.Body))
			require.Len(t, hotel.requests(), 1)
		})
	}
}

// TestCallsAreJSONInAFlowOfAvro: the participant's codec has no schema for a call and its answers.
func TestCallsAreJSONInAFlowOfAvro(t *testing.T) {
	t.Parallel()
	hotel := serve(t, status(http.StatusNoContent))
	registry, err := schemas.NewRegistry(testkit.Registry(t))
	require.NoError(t, err)
	codec, err := schemas.New(t.Context(), schemas.Config{Registry: registry})
	require.NoError(t, err)
	s := stage(t, hotel.URL, func(_ *ambassador.Config, p *participant.Config) { p.Codec = codec })
	m := call(s, "PUT", "/rooms/7", `{"taken":true}`)
	s.Send(m)
	got := testkit.Await[ambassador.CallDone](s, m)
	require.Equal(t, envelope.JSON, got.Message.ContentType)
	require.Equal(t, "troupe.CallDone", got.Message.Type)
	require.Equal(t, 204, got.Body.Status)
}

func TestAMessageThatMakesNoRequestIsADeadLetter(t *testing.T) {
	t.Parallel()
	hotel := serve(t, status(http.StatusOK))
	s := stage(t, hotel.URL+"/v1")
	for name, c := range map[string]struct {
		method, path, body string
		change             func(*envelope.Message)
		want               string
	}{
		"no method":           {"", "/a", "", nil, `method ""`},
		"another method":      {"CONNECT", "/a", "", nil, `method "CONNECT"`},
		"a method with more":  {"GET / HTTP/1.1\r\nX: y\r\n\r\nDELETE", "/a", "", nil, "want GET, POST, PUT, PATCH or DELETE"},
		"no path":             {"GET", "", "", nil, "begins with a slash"},
		"another host":        {"GET", "http://evil.example/", "", nil, "begins with a slash"},
		"a host by userinfo":  {"GET", "@evil.example/", "", nil, "begins with a slash"},
		"a host by slashes":   {"GET", "//evil.example/", "", nil, "two slashes"},
		"two slashes":         {"GET", "/a//b", "", nil, "two slashes"},
		"up":                  {"GET", "/../admin", "", nil, "lead elsewhere"},
		"up at the end":       {"GET", "/a/..", "", nil, "lead elsewhere"},
		"here":                {"GET", "/./a", "", nil, "lead elsewhere"},
		"escaped dots":        {"GET", "/%2e%2E/admin", "", nil, "lead elsewhere"},
		"an escaped slash":    {"GET", "/a%2f..%2f..%2fadmin", "", nil, "lead elsewhere"},
		"a slash by escaping": {"GET", "/a%2Fb|c", "", nil, "a character must be escaped"}, // net/url would send /a/b%7Cc
		"twice escaped":       {"GET", "/%252e%252e/admin", "", nil, "lead elsewhere"},
		"escaped for ever":    {"GET", "/%2525252525252e%2525252525252e/x", "", nil, "escaped more than"},
		"behind no escape":    {"GET", "/%25zz/%252e%252e/x", "", nil, "lead elsewhere"},
		"a backslash":         {"GET", `/..\admin`, "", nil, "must be escaped"},
		"an escaped one":      {"GET", "/a%5c..%5cadmin", "", nil, "lead elsewhere"},
		"dots with parameter": {"GET", "/..;a=b/admin", "", nil, "lead elsewhere"},
		"a query":             {"GET", "/a?admin=1", "", nil, "must be escaped"},
		"a fragment":          {"GET", "/a#b", "", nil, "must be escaped"},
		"a space":             {"GET", "/a HTTP/1.1", "", nil, "must be escaped"},
		"a line":              {"GET", "/a\r\nX: y", "", nil, "must be escaped"},
		"an escaped line":     {"GET", "/a%0d%0aX:%20y", "", nil, "control character"},
		"a broken escape":     {"GET", "/a%zz", "", nil, "invalid URL escape"},
		"not escaped":         {"GET", "/é", "", nil, "must be escaped"},
		"too long":            {"GET", "/" + strings.Repeat("a", 2048), "", nil, "want at most 2048"},
		"a forged header": {"GET", "/a", "", func(m *envelope.Message) { m.SagaID = "a\r\nX-Admin: 1" },
			"X-Saga-Id: the message's value has a control character"},
		"no JSON": {"GET", "/a", "", func(m *envelope.Message) { m.Payload = []byte(`{"method": 7}`) }, "unreadable payload"},
	} {
		m := call(s, c.method, c.path, c.body)
		if c.change != nil {
			c.change(&m)
		}
		s.Send(m)
		letter := s.AwaitDeadLetter(m)
		require.Contains(t, letter.Error, c.want, name)
		require.Equal(t, 1, letter.Attempts, name)
	}
	require.Empty(t, hotel.requests())
}

// With Retry400, a 400 asks for the request of a Call again, as it does for a request of Post.
func TestA400OfACallIsRetriedWhereTheConfigSaysSo(t *testing.T) {
	t.Parallel()
	hotel := serve(t, func(w http.ResponseWriter, _ *http.Request, n int) {
		if n == 0 {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	s := stage(t, hotel.URL, func(c *ambassador.Config, _ *participant.Config) { c.Retry400 = true })
	m := call(s, "POST", "/rooms", `{}`)
	s.Send(m)
	waits := waiting(s, "-1 h")
	testkit.Wait(t, "the next try's time, or the next try, which may come before the first look", func() (bool, error) {
		is, err := waits()
		return is || len(hotel.requests()) > 1, err
	})
	s.Advance(24 * time.Hour)
	require.Equal(t, 200, testkit.Await[ambassador.CallDone](s, m).Body.Status)
	require.Len(t, hotel.requests(), 2)
}
