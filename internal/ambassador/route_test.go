package ambassador_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ambassador"
	"github.com/troupe-go/troupe/internal/demo/messages"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/testkit"
)

// charge is a command of another service, for which there is no Go type.
type charge struct {
	Order string `json:"order"`
}

func (charge) MessageType() string { return "Charge" }

var charges = ambassador.Route{Type: "Charge", Path: "/charges", Success: "Charged", Failure: "Declined"}

// The function startAmbassador runs an ambassador that posts commands to the service at url.
func startAmbassador(t testing.TB, url string, routes []ambassador.Route, change ...func(*ambassador.Config, *participant.Config)) *testkit.Stage {
	t.Helper()
	cfg := ambassador.Config{BaseURL: url}
	with := participant.Config{
		Codec: ambassador.Codec{}, Batch: 8, Concurrency: 4, Immediate: -1,
		Retry: retry.Policy{Initial: time.Millisecond, Cap: 2 * time.Millisecond, Attempts: 4},
	}
	for _, c := range change {
		c(&cfg, &with)
	}
	a, err := ambassador.New(cfg)
	require.NoError(t, err)
	return testkit.NewStage(t, testkit.StageConfig{
		Hop: "payment", Participant: with,
		Handlers: func(_ *testkit.Stage, p *participant.Participant) { require.NoError(t, a.Post(p, routes...)) },
	})
}

// answers waits for events of the stage's hop, and returns them in their order.
func answers(s *testkit.Stage, t *testing.T, n int) []envelope.Message {
	t.Helper()
	return entries(s, t, s.Hop.Events(), n)
}

func entries(s *testkit.Stage, t *testing.T, topic string, n int) (all []envelope.Message) {
	t.Helper()
	testkit.Wait(t, "entries for "+topic, func() (bool, error) {
		all = s.Entries(topic)
		return len(all) >= n, nil
	})
	require.Len(t, all, n)
	return all
}

func TestACommandIsPostedAndItsAnswerMadeOfTheResponse(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	bank := serve(t, func(w http.ResponseWriter, r *http.Request, before int) {
		mu.Lock()
		defer mu.Unlock()
		switch before {
		case 0:
			_, _ = io.WriteString(w, `{"payment":"p-1"}`)
		case 1:
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"reason":"no money","code":7}`)
		case 2:
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "<html>no</html>")
		case 3:
			w.WriteHeader(http.StatusNoContent)
		default:
			_, _ = io.WriteString(w, "plain text")
		}
	})
	s := startAmbassador(t, bank.URL, []ambassador.Route{charges})
	var commands []envelope.Message
	for n := range 5 {
		m := s.Command("o-ü 1", charge{fmt.Sprint(n)}) // one key: one after the other
		m.TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		commands = append(commands, m)
	}
	s.Send(commands...)
	all := answers(s, t, 5)
	for n, want := range []struct {
		outcome envelope.Outcome
		typ     string
		payload string
	}{
		{envelope.Success, "Charged", `{"payment":"p-1"}`},
		{envelope.Failure, "Declined", `{"reason":"no money","code":7}`},
		{envelope.Failure, "Declined", `{"status":403,"reason":"403 Forbidden"}`},
		{envelope.Success, "Charged", `{}`},
		{envelope.Success, "Charged", `"plain text"`},
	} {
		require.Equal(t, want.outcome, all[n].Outcome)
		require.Equal(t, want.typ, all[n].Type)
		require.Equal(t, want.payload, string(all[n].Payload))
		require.Equal(t, commands[n].ID, all[n].CausationID)
		require.Equal(t, envelope.JSON, all[n].ContentType)
	}
	for n, r := range bank.requests() {
		require.Equal(t, "/charges", r.URL.Path)
		require.Equal(t, commands[n].IdempotencyKey, r.Header.Get("Idempotency-Key"))
		require.Equal(t, envelope.JSON, r.Header.Get("Content-Type"))
		for name, value := range map[string]string{
			"ce-specversion": "1.0", "ce-id": commands[n].ID, "ce-type": "Charge", "ce-source": commands[n].Source,
			"ce-subject": "o-%C3%BC%201", "ce-correlationid": commands[n].CorrelationID, "traceparent": commands[n].TraceParent,
		} {
			require.Equal(t, value, r.Header.Get(name), name)
		}
		require.JSONEq(t, fmt.Sprintf(`{"order":"%d"}`, n), bank.said[n])
	}
}

// TestARequestHasTheAttributesOfItsRoute: the sender of a command repeats attributes, with values that select no route and that the inbox does
// not compare. The service must not get those.
func TestARequestHasTheAttributesOfItsRoute(t *testing.T) {
	t.Parallel()
	bank := serve(t, status(200))
	s := startAmbassador(t, bank.URL, []ambassador.Route{charges})
	m := s.Command("o-1", charge{"1"})
	for _, name := range []string{"ce_type", "ce_TYPE", "ce_id", "ce_source", "ce_idempotencykey", "ce_Subject", "ce_specversion"} {
		m.Extra = append(m.Extra, envelope.Header{Key: name, Value: []byte("Refund")})
	}
	m.Extra = append(m.Extra, envelope.Header{Key: "ce_tenant", Value: []byte("t-1")})
	s.Send(m)
	answers(s, t, 1)
	got := bank.requests()[0].Header
	for name, value := range map[string]string{
		"ce-type": "Charge", "ce-id": m.ID, "ce-source": m.Source, "ce-idempotencykey": m.IdempotencyKey, "ce-subject": "o-1", "ce-specversion": "1.0", "ce-tenant": "t-1",
	} {
		require.Equal(t, []string{value}, got.Values(name), name)
	}

	bare := s.Command("o-2", charge{"1"})
	bare.IdempotencyKey, bare.Subject = "", ""
	bare.Extra = []envelope.Header{
		{Key: "ce_IdempotencyKey", Value: []byte("k")}, {Key: "ce_idempotencykey", Value: []byte(strings.Repeat("k", 1025))}, {Key: "CE_subject", Value: []byte("s")},
		{Key: "ce_Subject", Value: []byte("s")},
	}
	s.Send(bare)
	answers(s, t, 2)
	got = bank.requests()[1].Header
	require.Empty(t, got.Values("ce-idempotencykey"), "the ambassador does not know it")
	require.Empty(t, got.Values("ce-subject"))
}

func TestAPlainRequestHasNoAttributes(t *testing.T) {
	t.Parallel()
	bank := serve(t, status(200))
	s := startAmbassador(t, bank.URL, []ambassador.Route{charges}, func(c *ambassador.Config, _ *participant.Config) { c.Mode = ambassador.Plain })
	m := s.Command("o-1", charge{"1"})
	s.Send(m)
	answers(s, t, 1)
	r := bank.requests()[0]
	for name := range r.Header {
		require.False(t, strings.HasPrefix(name, "Ce-"), name)
	}
	require.Equal(t, m.IdempotencyKey, r.Header.Get("Idempotency-Key"))
}

// TestA400IsRetriedWhereTheServiceMeansIt: with Retry400, 200 is done and 400 is retried; without it a 400 is a refusal.
func TestA400IsRetriedWhereTheServiceMeansIt(t *testing.T) {
	t.Parallel()
	for retried, want := range map[bool]envelope.Outcome{true: envelope.Success, false: envelope.Failure} {
		t.Run(fmt.Sprint(retried), func(t *testing.T) {
			t.Parallel()
			bank := serve(t, func(w http.ResponseWriter, _ *http.Request, before int) {
				if before < 2 {
					w.WriteHeader(http.StatusBadRequest)
				}
			})
			s := startAmbassador(t, bank.URL, []ambassador.Route{charges}, func(c *ambassador.Config, _ *participant.Config) { c.Retry400 = retried })
			m := s.Command("o-1", charge{"1"})
			s.Send(m)
			require.Equal(t, want, answers(s, t, 1)[0].Outcome)
			for _, key := range bank.keys() {
				require.Equal(t, m.IdempotencyKey, key)
			}
			require.Len(t, bank.keys(), map[bool]int{true: 3, false: 1}[retried])
		})
	}
}

// TestTheTypeIsTheFlowsState: a command that is done becomes the next hop's command, with its body, key and flow.
func TestTheTypeIsTheFlowsState(t *testing.T) {
	t.Parallel()
	bank := serve(t, func(w http.ResponseWriter, r *http.Request, before int) {
		if before == 1 {
			w.WriteHeader(http.StatusConflict)
		}
		_, _ = io.WriteString(w, `{"parcel":"p-1"}`)
	})
	s := startAmbassador(t, bank.URL, []ambassador.Route{
		{Type: "Charge", Path: "/charges", Next: &ambassador.Next{Topic: "drone.package.commands", Type: "CreatePackage"}},
	})
	m := s.Command("o-1", charge{"1"})
	s.Send(m, s.Command("o-1", charge{"2"}))
	all := answers(s, t, 2)
	require.Equal(t, "ChargeDone", all[0].Type)
	require.Equal(t, "ChargeRefused", all[1].Type)
	next := entries(s, t, "drone.package.commands", 1)[0]
	require.Equal(t, "CreatePackage", next.Type)
	require.Equal(t, `{"parcel":"p-1"}`, string(next.Payload))
	require.Equal(t, []string{"o-1", m.ID, m.CorrelationID}, []string{string(next.Key), next.CausationID, next.CorrelationID})
	require.Empty(t, next.Outcome)
}

func TestAvroIsPostedAsJSONAndAnsweredInAvro(t *testing.T) {
	t.Parallel()
	registry, err := schemas.NewRegistry(testkit.Registry(t))
	require.NoError(t, err)
	codec, err := schemas.New(t.Context(), schemas.Config{Registry: registry, Types: messages.Types()})
	require.NoError(t, err)
	bank := serve(t, func(w http.ResponseWriter, _ *http.Request, before int) {
		if before == 1 {
			_, _ = io.WriteString(w, `{"parcel":7}`) // does not match the schema
			return
		}
		_, _ = io.WriteString(w, `{"order_id":"o-1","shipment_id":"t-1"}`)
	})
	s := startAmbassador(t, bank.URL, []ambassador.Route{
		{Type: "troupe.order.ShipOrder", Path: "/", Success: "troupe.order.OrderShipped", Failure: "troupe.order.ShippingRefused"},
	}, func(c *ambassador.Config, _ *participant.Config) { c.Schemas = codec })
	command := func() envelope.Message {
		encoded, err := codec.Encode("", messages.ShipOrder{OrderID: "o-1"})
		require.NoError(t, err)
		m := s.Command("o-1", charge{})
		m.Payload, m.Type, m.ContentType = encoded.Payload, encoded.Type, encoded.ContentType
		return m
	}
	m, wrong, poison := command(), command(), command()
	poison.Payload = []byte{0, 0, 0}
	s.Send(m, wrong, poison)
	letter := s.AwaitDeadLetter(wrong)
	require.Equal(t, participant.Permanent, letter.Class)
	require.Contains(t, letter.Error, "has done its part")
	require.Equal(t, 1, letter.Attempts)
	require.Equal(t, participant.Poison, s.AwaitDeadLetter(poison).Class)
	var shipped messages.OrderShipped
	e := s.Entries(s.Hop.Events())[0]
	require.Equal(t, envelope.Avro, e.ContentType)
	require.NoError(t, codec.Decode(e, &shipped))
	require.Equal(t, "t-1", shipped.ShipmentID)
	require.Contains(t, bank.said[0], `"order_id":"o-1"`)
	require.Len(t, bank.requests(), 2)
}

// TestHostileServices: each costs bounded memory and time, and gets an error that does not quote the response.
func TestHostileServices(t *testing.T) {
	t.Parallel()
	elsewhere := serve(t, status(200))
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter, r *http.Request, before int)
		class  participant.Class
		says   string
	}{
		"a huge body": {func(w http.ResponseWriter, _ *http.Request, _ int) {
			for chunk := make([]byte, 1<<20); ; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, participant.Permanent, "more than 4096 bytes"},
		"a body that drips": {func(w http.ResponseWriter, r *http.Request, _ int) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, "x")
				_ = http.NewResponseController(w).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(10 * time.Millisecond):
				}
			}
		}, participant.Timeout, "ran longer than"},
		"no answer": {func(_ http.ResponseWriter, r *http.Request, _ int) { <-r.Context().Done() }, participant.Timeout, "ran longer than"},
		"a redirect to another host": {func(w http.ResponseWriter, r *http.Request, _ int) {
			http.Redirect(w, r, elsewhere.URL+"/charges?token=hunter2", http.StatusTemporaryRedirect)
		}, participant.Permanent, "redirects are not followed"},
		"headers without end": {func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.Header().Set("X-Endless", strings.Repeat("x", 1<<20))
		}, participant.Transient, "headers of more than"},
		"no HTTP": {func(w http.ResponseWriter, _ *http.Request, _ int) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, "SSH-2.0-OpenSSH_9.9 password=hunter2\r\n")
				_ = conn.Close()
			}
		}, participant.Transient, "is no HTTP"},
		"a redirect to the metadata of a cloud": {func(w http.ResponseWriter, r *http.Request, _ int) {
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/iam/security-credentials/", http.StatusFound)
		}, participant.Permanent, "redirects are not followed"},
		"informational responses without end": {func(w http.ResponseWriter, r *http.Request, _ int) {
			w.Header().Set("Link", strings.Repeat("x", 1000))
			for r.Context().Err() == nil {
				w.WriteHeader(http.StatusEarlyHints)
			}
		}, participant.Transient, "headers of more than"},
		"a wrong Content-Length": {func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.Header().Set("Content-Length", "9223372036854775807")
			_, _ = io.WriteString(w, "{}")
		}, participant.Transient, "unexpected EOF"},
		"a status that there is not": {func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(999) },
			participant.Permanent, "no answer to a call"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bank := serve(t, c.answer)
			bank.Config.ErrorLog = quiet()
			s := startAmbassador(t, bank.URL, []ambassador.Route{charges}, attempts(1), func(a *ambassador.Config, p *participant.Config) {
				a.MaxBody, p.Timeout = 4096, 500*time.Millisecond
				if c.class != participant.Timeout {
					p.Timeout = time.Minute
				}
			})
			m := s.Command("o-1", charge{"1"})
			s.Send(m)
			letter := s.AwaitDeadLetter(m)
			require.Equal(t, c.class, letter.Class)
			require.Contains(t, letter.Error, c.says)
			require.NotContains(t, letter.Error, "hunter2")
		})
	}
	t.Cleanup(func() { require.Empty(t, elsewhere.requests()) })
}

// TestHostileServicesOverHTTP2 checks that the limits of a response hold over HTTP/2 too, where requests share a connection.
func TestHostileServicesOverHTTP2(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter, r *http.Request)
		class  participant.Class
		says   string
	}{
		"a huge body": {func(w http.ResponseWriter, _ *http.Request) {
			for chunk := make([]byte, 1<<20); ; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, participant.Permanent, "more than 4096 bytes"},
		"headers without end": {func(w http.ResponseWriter, _ *http.Request) {
			for i := range 1000 {
				w.Header().Set(fmt.Sprint("X-Endless-", i), strings.Repeat("x", 1000))
			}
		}, participant.Transient, "headers of more than"},
		"informational responses without end": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", strings.Repeat("x", 1000))
			for r.Context().Err() == nil {
				w.WriteHeader(http.StatusEarlyHints)
			}
		}, participant.Transient, "headers of more than"},
		"trailers without end": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "{}")
			for i := range 1000 {
				w.Header().Set(fmt.Sprint(http.TrailerPrefix, "X-Endless-", i), strings.Repeat("x", 1000))
			}
		}, participant.Transient, "headers of more than"},
		"a reset": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, participant.Transient, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bank := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.ProtoMajor != 2 {
					w.WriteHeader(http.StatusHTTPVersionNotSupported)
					return
				}
				c.answer(w, r)
			}))
			bank.EnableHTTP2, bank.Config.ErrorLog = true, quiet()
			bank.StartTLS()
			t.Cleanup(bank.Close)
			s := startAmbassador(t, bank.URL, []ambassador.Route{charges}, attempts(1), func(a *ambassador.Config, p *participant.Config) {
				roots := x509.NewCertPool()
				roots.AddCert(bank.Certificate())
				transport := ambassador.NewTransport(&tls.Config{RootCAs: roots}, 4)
				t.Cleanup(transport.CloseIdleConnections)
				a.MaxBody, a.Transport, p.Timeout = 4096, transport, time.Minute
			})
			m := s.Command("o-1", charge{"1"})
			s.Send(m)
			letter := s.AwaitDeadLetter(m)
			require.Equal(t, c.class, letter.Class)
			require.Contains(t, letter.Error, c.says)
		})
	}
}

func TestRequestsAreSigned(t *testing.T) {
	t.Parallel()
	key := []byte("0123456789abcdef0123456789abcdef")
	whsec := "whsec_" + base64.StdEncoding.EncodeToString(key)
	for name, c := range map[string]struct {
		sign  func(string) (ambassador.Signer, error)
		with  string
		check func(t *testing.T, h http.Header, body string)
	}{
		"standard-webhooks": {ambassador.StandardWebhooks, whsec, func(t *testing.T, h http.Header, body string) {
			require.Equal(t, h.Get("Idempotency-Key"), h.Get("webhook-id"))
			mac := hmac.New(sha256.New, key)
			_, _ = io.WriteString(mac, h.Get("webhook-id")+"."+h.Get("webhook-timestamp")+"."+body)
			require.Equal(t, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)), h.Get("webhook-signature"))
		}},
		"github": {ambassador.GitHub, string(key), func(t *testing.T, h http.Header, body string) {
			mac := hmac.New(sha256.New, key)
			_, _ = io.WriteString(mac, body)
			require.Equal(t, "sha256="+hex.EncodeToString(mac.Sum(nil)), h.Get("X-Hub-Signature-256"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bank := serve(t, status(200))
			sign, err := c.sign(c.with)
			require.NoError(t, err)
			s := startAmbassador(t, bank.URL, []ambassador.Route{charges}, func(a *ambassador.Config, _ *participant.Config) { a.Sign = sign })
			s.Send(s.Command("o-1", charge{"1"}))
			answers(s, t, 1)
			c.check(t, bank.requests()[0].Header, bank.said[0])
		})
	}
	// The example of the specification, standard-webhooks 1.0.
	sign, err := ambassador.StandardWebhooks("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	require.NoError(t, err)
	h := make(http.Header)
	sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	require.Equal(t, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", h.Get("webhook-signature"))
	for _, weak := range []string{"", "whsec_", "whsec_c2hvcnQ=", "no base64 at all!", "whsec_" + strings.Repeat("A", 400)} {
		_, err := ambassador.StandardWebhooks(weak)
		require.ErrorContains(t, err, "signing secret")
		require.NotContains(t, err.Error(), "c2hvcnQ=")
	}
	_, err = ambassador.GitHub("short")
	require.ErrorContains(t, err, "want 24 or more")
}

// TestACrashAtEveryStepPostsTheSameKey: a service that stores the keys executes the command once.
func TestACrashAtEveryStepPostsTheSameKey(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked := make(map[string]int)
	bank := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		mu.Lock()
		defer mu.Unlock()
		asked[r.Header.Get("Idempotency-Key")]++
		_, _ = io.WriteString(w, `{"payment":"p-1"}`)
	})
	testkit.CrashAtEveryStep(t, testkit.StageConfig{
		Participant: participant.Config{Codec: ambassador.Codec{}, Batch: 8},
		Handlers: func(_ *testkit.Stage, p *participant.Participant) {
			a, err := ambassador.New(ambassador.Config{BaseURL: bank.URL})
			require.NoError(t, err)
			require.NoError(t, a.Post(p, ambassador.Route{
				Type: "Charge", Path: "/charges", Next: &ambassador.Next{Topic: "drone.package.commands", Type: "CreatePackage"},
			}))
		},
	}, func(s *testkit.Stage) envelope.Message { return s.Command("o-1", charge{"1"}) },
		testkit.Query("SELECT topic LIKE '%events', type, payload FROM troupe.outbox"))
	mu.Lock()
	defer mu.Unlock()
	require.NotEmpty(t, asked)
}

func TestARouteThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	a, err := ambassador.New(ambassador.Config{BaseURL: "http://127.0.0.1:1"})
	require.NoError(t, err)
	for says, r := range map[string]ambassador.Route{
		"without a type":                {Path: "/"},
		"begins with a slash":           {Type: "A", Path: "charges"},
		"would lead elsewhere":          {Type: "A", Path: "/a/../../b"},
		"want a topic and a type":       {Type: "A", Path: "/", Next: &ambassador.Next{Topic: "a.b.commands"}},
		"character '?' must be escaped": {Type: "A", Path: "/a?b=c"},
	} {
		require.ErrorContains(t, a.Post(nil, r), says)
	}
	_, err = ambassador.New(ambassador.Config{BaseURL: "http://127.0.0.1:1", Mode: "structured"})
	require.ErrorContains(t, err, "want cloudevents or plain")
}
