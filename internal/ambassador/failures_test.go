package ambassador_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/ambassador"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

func attempts(n int) func(*ambassador.Config, *participant.Config) {
	return func(_ *ambassador.Config, p *participant.Config) { p.Retry.Attempts = n }
}

// waiting reports whether one message is held for at least that long, by the database's clock.
func waiting(s *testkit.Stage, least string) func() (bool, error) {
	return func() (bool, error) {
		var n int
		err := s.Pool.QueryRow(context.Background(),
			"SELECT count(*) FROM troupe.held WHERE next_try > clock_timestamp() + $1::interval", least).Scan(&n)
		return n == 1, err
	}
}

func TestRetryAfterIsHonouredAndTheKeyStays(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		status int
		header http.Header
		least  string
	}{
		"503 in seconds": {503, http.Header{"Retry-After": {"7200"}}, "119 min"},
		"429 as a date of the service's own clock": {429, http.Header{
			"Date": {now.Add(-240 * time.Hour).UTC().Format(http.TimeFormat)}, "Retry-After": {now.Add(-238 * time.Hour).UTC().Format(http.TimeFormat)},
		}, "119 min"},
		"425 for years":                       {425, http.Header{"Retry-After": {"99999999999999999999"}}, "1439 min"},
		"408, at least a day's worth of time": {408, http.Header{"Retry-After": {"86401"}}, "1439 min"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hotel := serve(t, func(w http.ResponseWriter, r *http.Request, before int) {
				if before == 0 {
					for k, v := range c.header {
						w.Header()[k] = v
					}
					w.WriteHeader(c.status)
				}
			})
			s := stage(t, hotel.URL)
			m := call(s, "POST", "/rooms", `{}`)
			m.IdempotencyKey = "" // then the id is the key
			s.Send(m)
			testkit.Wait(t, "the next try's time", waiting(s, c.least))
			require.Len(t, hotel.requests(), 1)
			s.Advance(24 * time.Hour)
			require.Equal(t, 200, done(s, m).Status)
			require.Equal(t, []string{m.ID, m.ID}, hotel.keys())
		})
	}
}

func TestA5xxIsRetriedAndAtLastADeadLetter(t *testing.T) {
	t.Parallel()
	hotel := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Set("Retry-After", "soon")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "password=hunter2")
	})
	s := stage(t, hotel.URL, attempts(3))
	m := call(s, "POST", "/rooms/7", `{}`)
	s.Send(m)
	letter := s.AwaitDeadLetter(m)
	require.Equal(t, `POST "/rooms/7": 502 Bad Gateway`, letter.Error)
	require.Equal(t, participant.Transient, letter.Class)
	require.Equal(t, 3, letter.Attempts)
	require.Equal(t, []string{m.IdempotencyKey, m.IdempotencyKey, m.IdempotencyKey}, hotel.keys())
}

func TestNoRedirectIsFollowed(t *testing.T) {
	t.Parallel()
	elsewhere := serve(t, status(http.StatusOK))
	for _, code := range []int{300, 301, 302, 303, 304, 307, 308} {
		hotel := serve(t, func(w http.ResponseWriter, r *http.Request, before int) {
			switch {
			case before > 0:
				w.Header().Set("Location", "http://[::%zz") // a header that cannot be parsed
			default:
				w.Header().Set("Location", strings.Replace(elsewhere.URL, "://", "://user:hunter2@", 1)+"/there?token=hunter2")
			}
			w.WriteHeader(code)
		})
		s := stage(t, hotel.URL, func(c *ambassador.Config, _ *participant.Config) {
			c.Header = http.Header{"Authorization": {"hunter2"}}
		})
		m, unreadable := call(s, "POST", "/rooms", `{}`), call(s, "POST", "/rooms", `{}`)
		s.Send(m, unreadable)
		letter := s.AwaitDeadLetter(m)
		require.Equal(t, participant.Permanent, letter.Class)
		require.Contains(t, letter.Error, elsewhere.URL+"/there: redirects are not followed; set service-url, or the path of the endpoint, to that address")
		require.NotContains(t, letter.Error, "hunter2")
		require.Contains(t, s.AwaitDeadLetter(unreadable).Error, "to nowhere")
		require.Len(t, hotel.requests(), 2)
	}
	require.Empty(t, elsewhere.requests())
}

func TestAStatusThatIsNoAnswerIsADeadLetter(t *testing.T) {
	t.Parallel()
	hotel := serve(t, status(601))
	s := stage(t, hotel.URL)
	m := call(s, "POST", "/rooms", `{}`)
	s.Send(m)
	letter := s.AwaitDeadLetter(m)
	require.Equal(t, `POST "/rooms": status 601 is no answer to a call`, letter.Error)
	require.Equal(t, 1, letter.Attempts)
}

// TestAServiceThatHangsCostsItsTimeOut: before the response, and in the middle of it.
func TestAServiceThatHangsCostsItsTimeOut(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]string{"before the answer": "", "in the middle of it": `{"reservation`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var left atomic.Int32
			hotel := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
				if before != "" {
					_, _ = io.WriteString(w, before)
					w.(http.Flusher).Flush()
				}
				<-r.Context().Done() // until the ambassador disconnects
				left.Add(1)
			})
			s := stage(t, hotel.URL, attempts(2), func(_ *ambassador.Config, p *participant.Config) { p.Timeout = 3 * time.Second }) // to reach the service
			m := call(s, "POST", "/rooms", `{}`)
			s.Send(m)
			letter := s.AwaitDeadLetter(m)
			require.Equal(t, participant.Timeout, letter.Class)
			require.Equal(t, 2, letter.Attempts)
			require.Equal(t, []string{m.IdempotencyKey, m.IdempotencyKey}, hotel.keys())
			testkit.Wait(t, "the service to be left", func() (bool, error) { return left.Load() == 2, nil })
		})
	}
}

// TestAnEndlessAnswerIsNotRead: the memory for a response is bounded.
func TestAnEndlessAnswerIsNotRead(t *testing.T) {
	t.Parallel()
	for _, code := range []int{200, 422, 503} {
		const most = 64 << 20 // more than the sockets hold
		var sent, left atomic.Int64
		hotel := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
			defer left.Add(1)
			w.WriteHeader(code)
			for piece := []byte(strings.Repeat("7", 64<<10)); sent.Load() < 2*most; { // so that the test ends also if all is read
				n, err := w.Write(piece)
				if sent.Add(int64(n)); err != nil {
					return
				}
			}
		})
		s := stage(t, hotel.URL, attempts(1))
		m := call(s, "POST", "/rooms", `{}`)
		s.Send(m)
		testkit.Wait(t, "the service to be left", func() (bool, error) { return left.Load() == 1, nil })
		require.Less(t, sent.Load(), int64(most))
		switch code {
		case 200:
			require.Equal(t, `POST "/rooms": 200 OK with more than 262144 bytes: the service has executed the request; raise max-answer-kb and redrive, or let it answer less`,
				s.AwaitDeadLetter(m).Error)
		case 422:
			got := testkit.Await[ambassador.CallRefused](s, m).Body
			require.Equal(t, ambassador.CallRefused{Status: 422, Body: []byte("null"), Reason: "422 Unprocessable Entity"}, got)
		case 503:
			require.Equal(t, `POST "/rooms": 503 Service Unavailable`, s.AwaitDeadLetter(m).Error)
		}
	}
}

func TestAnAnswerOfTheLargestSizePasses(t *testing.T) {
	t.Parallel()
	says := `"` + strings.Repeat("x", 998) + `"`
	hotel := serve(t, func(w http.ResponseWriter, _ *http.Request, before int) {
		_, _ = io.WriteString(w, says+strings.Repeat(" ", before))
	})
	s := stage(t, hotel.URL, func(c *ambassador.Config, _ *participant.Config) { c.MaxBody = 1000 })
	m, larger := call(s, "GET", "/", ""), call(s, "GET", "/", "")
	s.Send(m, larger)
	require.Equal(t, says, string(done(s, m).Body))
	require.Contains(t, s.AwaitDeadLetter(larger).Error, "with more than 1000 bytes")
}

// TestAConnectionThatBreaksIsRetried: it is unknown whether the service executed the request, so the same key is sent again.
func TestAConnectionThatBreaksIsRetried(t *testing.T) {
	t.Parallel()
	hotel := serve(t, func(w http.ResponseWriter, _ *http.Request, before int) {
		switch before {
		case 0:
			panic(http.ErrAbortHandler)
		case 1:
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
			panic(http.ErrAbortHandler)
		}
	})
	s := stage(t, hotel.URL)
	m := call(s, "POST", "/rooms", `{}`)
	s.Send(m)
	got := testkit.Await[ambassador.CallDone](s, m)
	require.Equal(t, 200, got.Body.Status)
	require.Equal(t, []string{m.IdempotencyKey, m.IdempotencyKey, m.IdempotencyKey}, hotel.keys())
	var letters int
	require.NoError(t, s.Pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.dead_letters").Scan(&letters))
	require.Zero(t, letters)
}

// TestAServiceThatIsAwayBurnsNoAttempts: the partition waits for the service, with a policy that allows one attempt.
func TestAServiceThatIsAwayBurnsNoAttempts(t *testing.T) {
	t.Parallel()
	address, listen := place(t)
	breakers := make(chan participant.Breaker, 1000)
	s := stage(t, "http://"+address, attempts(1), func(_ *ambassador.Config, p *participant.Config) {
		p.Hooks.Breaker = func(b participant.Breaker) { breakers <- b }
	})
	m := call(s, "POST", "/rooms", `{}`)
	s.Send(m)
	shut := waitForBreaker(t, breakers)
	require.Equal(t, "the service at http://"+address, shut.What)
	require.ErrorContains(t, shut.Err, "refused")

	hotel := &service{}
	hotel.Server = httptest.NewUnstartedServer(hotel.handler(status(http.StatusOK)))
	require.NoError(t, hotel.Listener.Close())
	hotel.Listener = listen()
	hotel.Start()
	t.Cleanup(hotel.Close)
	require.Equal(t, 200, done(s, m).Status)
	require.Equal(t, []string{m.IdempotencyKey}, hotel.keys())
}

// place reserves an address that refuses connections until listen is called. No other process can get it meanwhile.
func place(t *testing.T) (address string, listen func() net.Listener) {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	syscall.CloseOnExec(socket)
	file := os.NewFile(uintptr(socket), "place")
	t.Cleanup(func() { _ = file.Close() })
	require.NoError(t, syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	bound, err := syscall.Getsockname(socket)
	require.NoError(t, err)
	return fmt.Sprintf("127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port), func() net.Listener {
		require.NoError(t, syscall.Listen(socket, syscall.SOMAXCONN))
		l, err := net.FileListener(file)
		require.NoError(t, err)
		require.NoError(t, file.Close()) // the listener has a copy
		return l
	}
}

// TestTLSThatFailsIsAServiceThatIsAway: an expired certificate must not turn a day's messages into dead letters.
// Config.Transport is the remedy.
func TestTLSThatFailsIsAServiceThatIsAway(t *testing.T) {
	t.Parallel()
	hotel := &service{}
	hotel.Server = httptest.NewUnstartedServer(hotel.handler(status(http.StatusOK)))
	hotel.Config.ErrorLog = quiet()
	hotel.StartTLS()
	t.Cleanup(hotel.Close)
	breakers := make(chan participant.Breaker, 1000)
	s := stage(t, hotel.URL, attempts(1), func(_ *ambassador.Config, p *participant.Config) {
		p.Hooks.Breaker = func(b participant.Breaker) { breakers <- b }
	})
	s.Send(call(s, "POST", "/rooms", `{}`))
	require.ErrorContains(t, waitForBreaker(t, breakers).Err, "certificate")

	known := hotel.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	trusting := stage(t, hotel.URL, attempts(1), func(c *ambassador.Config, _ *participant.Config) {
		c.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: known}}
	})
	m := call(trusting, "POST", "/rooms", `{}`)
	trusting.Send(m)
	require.Equal(t, 200, done(trusting, m).Status)
}

func waitForBreaker(t *testing.T, breakers <-chan participant.Breaker) (b participant.Breaker) {
	t.Helper()
	testkit.Wait(t, "the partition to wait", func() (bool, error) {
		select {
		case b = <-breakers:
			return true, nil
		default:
			return false, nil
		}
	})
	return b
}

func TestNoCookieIsKept(t *testing.T) {
	t.Parallel()
	hotel := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int) { w.Header().Set("Set-Cookie", "session=1") })
	s := stage(t, hotel.URL)
	first, second := call(s, "GET", "/", ""), call(s, "GET", "/", "")
	s.Send(first, second)
	done(s, second)
	require.Empty(t, hotel.requests()[1].Header["Cookie"])
}

func TestMistakesInAConfigAreNamed(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]ambassador.Config{
		"without a base URL":            {},
		"want http or https":            {BaseURL: "ftp://hotel.example/"},
		"want http or https and a host": {BaseURL: "http:///hunter2"},
		"cannot be read":                {BaseURL: "http://a:hunter2@hotel.example:port/"},
		"put them into Config.Header":   {BaseURL: "http://a:hunter2@hotel.example/"},
		"has a query":                   {BaseURL: "http://hotel.example/?token=hunter2"},
		"lead elsewhere":                {BaseURL: "http://hotel.example/a/../b"},
		"want 0 to 900000":              {BaseURL: "http://hotel.example", MaxBody: 900_001},
		"max body -1":                   {BaseURL: "http://hotel.example", MaxBody: -1},
		"header X-Token: its value":     {BaseURL: "http://hotel.example", Header: http.Header{"X-Token": {"hunter2\r\nX: y"}}},
		"no name that HTTP knows":       {BaseURL: "http://hotel.example", Header: http.Header{"X Token": {"hunter2"}}},
		"header host is":                {BaseURL: "http://hotel.example", Header: http.Header{"host": {"hunter2"}}},
	} {
		_, err := ambassador.New(cfg)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "hunter2")
	}
}
