package alert_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/alert"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// receiver is a webhook that stores its requests and answers with answer.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	last   *http.Request
	answer func(w http.ResponseWriter, r *http.Request) // nil: 200
}

func newReceiver(t *testing.T, answer http.HandlerFunc) *receiver {
	r := &receiver{answer: answer}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		r.mu.Lock()
		r.bodies, r.last = append(r.bodies, string(body)), request
		r.mu.Unlock()
		if r.answer != nil {
			r.answer(w, request)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) got() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.bodies...)
}

func (r *receiver) wait(t *testing.T, n int) []string {
	t.Helper()
	testkit.Wait(t, fmt.Sprintf("%d requests", n), func() (bool, error) { return len(r.got()) >= n, nil })
	return r.got()
}

func quick(url string) alert.Config {
	return alert.Config{
		URL: url, Source: "payment", Every: time.Hour, Timeout: time.Minute, Drain: time.Minute,
		Retry: retry.Policy{Initial: time.Millisecond, Cap: 5 * time.Millisecond, Attempts: 3},
	}
}

func start(t *testing.T, cfg alert.Config) *alert.Notifier {
	t.Helper()
	n, err := alert.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = n.Close() })
	return n
}

func letter(text string) alert.Incident {
	return alert.Incident{Kind: "dead letter", Class: "permanent", Where: "order.payment/Charge", Key: "o-1", ID: "m-1", Text: text}
}

// counted returns a body that has the cause and the counts.
func counted(a alert.Alert) ([]byte, error) {
	return json.Marshal(map[string]any{"text": a.Text, "count": a.Count, "dropped": a.Dropped})
}

type count struct {
	Text           string
	Count, Dropped int
}

func parse(t *testing.T, bodies []string) (all []count) {
	t.Helper()
	for _, b := range bodies {
		var c count
		require.NoError(t, json.Unmarshal([]byte(b), &c), b)
		all = append(all, c)
	}
	return all
}

func waitFor(t *testing.T, n *alert.Notifier, what string, is func(alert.Stats) bool) alert.Stats {
	t.Helper()
	testkit.Wait(t, what, func() (bool, error) {
		if s := n.Stats(); !is(s) {
			return false, fmt.Errorf("%+v", s)
		}
		return true, nil
	})
	return n.Stats()
}

func requireBooked(t *testing.T, s alert.Stats) {
	t.Helper()
	require.Equal(t, s.Incidents, s.Told+s.Lost+s.Dropped+s.Waiting, "%+v", s)
}

func TestThousandDeadLettersOfTwoCausesAreTwoAlertsAndThenCounts(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	cfg := quick(r.URL)
	cfg.Body = counted
	n := start(t, cfg)
	var busy sync.WaitGroup
	for member := range 4 {
		busy.Go(func() {
			for i := range 250 {
				n.Notify(letter(fmt.Sprintf(`account "a-%d" of order %d-%d is %s`, i, member, i, []string{"closed", "unknown"}[i%2])))
			}
		})
	}
	busy.Wait()
	waitFor(t, n, "two alerts", func(s alert.Stats) bool { return s.Alerts == 2 })
	require.Len(t, r.got(), 2)
	require.NoError(t, n.Close())
	all := parse(t, r.got())
	require.LessOrEqual(t, len(all), 4, "the first of each cause, and the count since then")
	sums := map[string]int{}
	for _, c := range all {
		sums[c.Text[strings.LastIndexByte(c.Text, ' ')+1:]] += c.Count
	}
	require.Equal(t, map[string]int{"closed": 500, "unknown": 500}, sums)
	require.Equal(t, alert.Stats{Incidents: 1000, Alerts: int64(len(all)), Told: 1000}, n.Stats())
}

func TestACountGoesOutWhenItsTimeHasCome(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	cfg := quick(r.URL)
	cfg.Every, cfg.Body = 100*time.Millisecond, counted
	n := start(t, cfg)
	n.Notify(letter("first"))
	r.wait(t, 1)
	for range 5 {
		n.Notify(letter("first"))
	}
	waitFor(t, n, "the rest to be reported", func(s alert.Stats) bool { return s.Told == 6 })
	sum := 0
	for _, c := range parse(t, r.got()) {
		sum += c.Count
	}
	require.Equal(t, 6, sum)
	require.Equal(t, 1, parse(t, r.got())[0].Count)
}

func TestTheDefaultBodyIsWhatChatsRead(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	cfg := quick(r.URL)
	cfg.Header = http.Header{"authorization": {"Bearer abc"}}
	n := start(t, cfg)
	i := letter("line one\n\"two\" <!channel> @all \x1b[31m")
	i.At = time.Unix(0, 0)
	n.Notify(i)
	var body map[string]string
	require.NoError(t, json.Unmarshal([]byte(r.wait(t, 1)[0]), &body))
	require.Equal(t, map[string]string{
		"text": `payment: dead letter: order.payment/Charge: permanent: line one "two" ‹!channel› ＠all [31m; key o-1; id m-1`,
	}, body)
	require.Equal(t, "application/json", r.last.Header.Get("Content-Type"))
	require.Equal(t, "Bearer abc", r.last.Header.Get("Authorization"))
}

func TestAReceiverThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	statuses := []int{500, 429, 503, 408, 500, 200}
	var r *receiver
	r = newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(statuses[min(len(r.got()), len(statuses))-1])
	})
	cfg := quick(r.URL)
	cfg.Body = counted
	n := start(t, cfg)
	n.Notify(letter("closed"))
	s := waitFor(t, n, "an alert", func(s alert.Stats) bool { return s.Alerts == 1 })
	require.Equal(t, alert.Stats{Incidents: 1, Alerts: 1, Attempts: 5, Told: 1}, s)
	require.Len(t, r.got(), 6)
}

func TestWhileTheReceiverIsAwayNothingIsLostAndNobodyWaits(t *testing.T) {
	t.Parallel()
	log := &lines{}
	cfg := quick("http://127.0.0.1:1/hooks/T0P-SECRET?token=HIDDEN-TOKEN") // a port that no other test uses
	cfg.Log = zerolog.New(log)
	n := start(t, cfg)
	for i := range 100 {
		n.Notify(letter(fmt.Sprintf("closed %d", i)))
	}
	waitFor(t, n, "attempts", func(s alert.Stats) bool { return s.Attempts > 6 })
	s := n.Stats()
	require.Equal(t, int64(100), s.Waiting)
	requireBooked(t, s)
	require.ErrorContains(t, n.Close(), "100 incidents were not told")
	s = n.Stats()
	require.Equal(t, int64(100), s.Lost)
	n.Notify(letter("after the end"))
	require.Equal(t, int64(1), n.Stats().Dropped)
	require.Contains(t, log.String(), "alert not delivered")
	require.Contains(t, log.String(), "connection refused")
	require.NotContains(t, log.String(), "T0P-SECRET")
	require.NotContains(t, log.String(), "HIDDEN-TOKEN")
}

func TestASlowReceiverIsLeftAtTheTimeout(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	r := newReceiver(t, func(_ http.ResponseWriter, request *http.Request) {
		select {
		case <-request.Context().Done():
		case <-release:
		}
	})
	defer close(release)
	log := &lines{}
	cfg := quick(r.URL)
	cfg.Timeout, cfg.Log = 50*time.Millisecond, zerolog.New(log)
	n := start(t, cfg)
	n.Notify(letter("closed"))
	waitFor(t, n, "attempts", func(s alert.Stats) bool { return s.Attempts >= 3 })
	testkit.Wait(t, "the line", func() (bool, error) { return strings.Contains(log.String(), "alert not delivered"), nil })
	require.Contains(t, log.String(), "Client.Timeout exceeded")
}

func TestCloseEndsInTimeBesideAReceiverThatHangs(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	r := newReceiver(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	cfg := quick(r.URL)
	cfg.Drain, cfg.Timeout = 20*time.Millisecond, time.Hour
	n := start(t, cfg)
	n.Notify(letter("closed"))
	r.wait(t, 1)
	require.ErrorContains(t, n.Close(), "1 incidents were not told")
	requireBooked(t, n.Stats())
}

func TestARefusedAlertIsLostAndLogged(t *testing.T) {
	t.Parallel()
	elsewhere := newReceiver(t, nil)
	for name, answer := range map[string]http.HandlerFunc{
		"status 403: invalid … for …": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "invalid "+r.URL.Path+"\nfor "+r.Header.Get("Authorization"))
		},
		"it redirects, with status 307": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", elsewhere.URL)
			w.WriteHeader(http.StatusTemporaryRedirect)
		},
		"it redirects, with status 301": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusMovedPermanently)
		},
	} {
		r, log := newReceiver(t, answer), &lines{}
		cfg := quick(r.URL + "/hooks/T0P-SECRET")
		cfg.Header = http.Header{"Authorization": {"Bearer HIDDEN"}}
		cfg.Log = zerolog.New(log)
		n := start(t, cfg)
		n.Notify(letter("closed"))
		s := waitFor(t, n, "it to be lost", func(s alert.Stats) bool { return s.Lost == 1 })
		require.Equal(t, alert.Stats{Incidents: 1, Attempts: 1, Lost: 1}, s)
		testkit.Wait(t, name, func() (bool, error) { return strings.Contains(log.String(), "alert lost"), nil })
		require.Contains(t, log.String(), name)
		require.NotContains(t, log.String(), "SECRET")
		require.NotContains(t, log.String(), "HIDDEN")
		require.Len(t, r.got(), 1)
	}
	require.Empty(t, elsewhere.got())
}

// Package net/http sends the user and password of the URL as a header.
func TestAnAnswerThatRepeatsTheRequestShowsNoSecret(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]http.Header{"Basic": nil, "Bearer": {"Authorization": {"Bearer HIDDEN-\"TOKEN"}}} {
		r, log := newReceiver(t, func(w http.ResponseWriter, r *http.Request) {
			scheme, word, _ := strings.Cut(r.Header.Get("Authorization"), " ")
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprintf(w, "invalid %s %s, %q of %s", scheme, word, word, r.Header.Get("Authorization"))
		}), &lines{}
		cfg := quick(strings.Replace(r.URL, "://", "://ann:HIDDEN-PASSWORD@", 1))
		cfg.Header, cfg.Log = header, zerolog.New(log)
		n := start(t, cfg)
		n.Notify(letter("closed"))
		testkit.Wait(t, "the log", func() (bool, error) { return strings.Contains(log.String(), "alert lost"), nil })
		require.Contains(t, log.String(), "status 403: invalid", name)
		require.NotContains(t, log.String(), "HIDDEN", name)
		require.NotContains(t, log.String(), base64.StdEncoding.EncodeToString([]byte("ann:HIDDEN-PASSWORD")), name)
	}
}

// The text of an answer is cut, and only its beginning is read. The first half of a secret would not be recognised as one.
func TestNoPartOfASecretIsLoggedWhereAnAnswerIsCut(t *testing.T) {
	t.Parallel()
	for _, before := range []string{strings.Repeat("x", 190), "invalid" + strings.Repeat(" ", 4<<10-12)} {
		r, log := newReceiver(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, before+r.Header.Get("Authorization"))
		}), &lines{}
		cfg := quick(r.URL)
		cfg.Header = http.Header{"Authorization": {"HIDDEN-HIDDEN-HIDDEN"}}
		cfg.Log = zerolog.New(log)
		n := start(t, cfg)
		n.Notify(letter("closed"))
		testkit.Wait(t, "the log", func() (bool, error) { return strings.Contains(log.String(), "alert lost"), nil })
		require.Contains(t, log.String(), "status 403")
		require.NotContains(t, log.String(), "HID")
	}
}

func TestCausesThatThereIsNoRoomForAreCountedInTheNextAlert(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	cfg := quick(r.URL)
	cfg.Causes, cfg.Body = 3, counted
	n := start(t, cfg)
	for _, word := range []string{"one", "two", "three", "four", "five", "one"} {
		n.Notify(letter(word))
	}
	require.NoError(t, n.Close())
	s := n.Stats()
	require.Equal(t, int64(2), s.Dropped)
	require.Equal(t, int64(4), s.Told)
	dropped := 0
	for _, c := range parse(t, r.got()) {
		dropped += c.Dropped
	}
	require.Equal(t, 2, dropped)
}

func TestACauseThatIsQuietMakesRoom(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	cfg := quick(r.URL)
	cfg.Causes, cfg.Every = 1, time.Nanosecond
	n := start(t, cfg)
	for i, word := range []string{"one", "two", "three"} {
		n.Notify(letter(word))
		waitFor(t, n, word, func(s alert.Stats) bool { return s.Told == int64(i+1) })
	}
	require.Zero(t, n.Stats().Dropped)
}

func TestWithoutAURLAlertsAreLoggedOncePerCause(t *testing.T) {
	t.Parallel()
	log := &lines{}
	n := start(t, alert.Config{Log: zerolog.New(log)})
	n.Notify(letter("account 1 is closed"))
	waitFor(t, n, "an alert", func(s alert.Stats) bool { return s.Alerts == 1 })
	for i := range 9 {
		n.Notify(letter(fmt.Sprintf("account %d is closed", i)))
	}
	require.NoError(t, n.Close())
	require.Equal(t, 2, strings.Count(log.String(), `"message":"alert"`))
	require.Contains(t, log.String(), `"count":9`)
}

func TestDetailsOfOneMessageAreNotPartOfTheCause(t *testing.T) {
	t.Parallel()
	for same, others := range map[string][]string{
		`no account "a-1" at 10.0.0.1:5432`:                                  {`no account "b" at 10.0.0.2:5433`},
		"insert 'o-1': duplicate":                                            {"insert 'o-2': duplicate"},
		"message 0199a5e0-7c1d-7d3a-9d0b-6f3b1c2d4e5f took 1.5 s":            {"message 0299A5E0-7c1d-7d3a-9d0b-6f3b1c2d4e5f took 22 s"},
		"pointer 0xc000a1b2 of deadbeef01":                                   {"pointer 0xc0ffee of 01deadbeef"},
		"can't open the customer's file " + strings.Repeat("and so on ", 50): {"can't open the customer's file " + strings.Repeat("and so on ", 60)},
	} {
		n := start(t, alert.Config{Every: time.Hour})
		n.Notify(letter(same))
		waitFor(t, n, same, func(s alert.Stats) bool { return s.Alerts == 1 })
		for _, other := range others {
			n.Notify(letter(other))
			require.Equal(t, int64(1), n.Stats().Waiting, other)
		}
		n.Notify(letter("defaced"))
		waitFor(t, n, "another cause", func(s alert.Stats) bool { return s.Alerts == 2 })
	}
}

func TestBadConfigurationsAreRefusedWithoutTheirSecrets(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]alert.Config{
		"the URL is none like": {URL: "chat.example/T0P-SECRET"},
		"is none like":         {URL: "ftp://chat.example/T0P-SECRET"},
		"use https":            {URL: "http://user:T0P-SECRET@chat.example/"},
		"no such text":         {Body: func(alert.Alert) ([]byte, error) { return nil, errors.New("no such text") }},
		"is no JSON":           {Body: func(a alert.Alert) ([]byte, error) { return []byte(`{"text": "` + a.Text + `"}`), nil }},
		"a body of":            {Body: func(alert.Alert) ([]byte, error) { return make([]byte, 70_000), nil }, ContentType: "text/plain"},
		"want none below zero": {Every: -1},
		"retry: ":              {Retry: retry.Policy{Initial: -1}},
	} {
		_, err := alert.New(cfg)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "T0P-SECRET")
	}
	n := start(t, alert.Config{
		Body: func(a alert.Alert) ([]byte, error) { return []byte(a.Kind + " " + a.Text), nil }, ContentType: "text/plain",
	})
	require.NoError(t, n.Close())
}

func TestLongTextsAreTruncated(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	n := start(t, quick(r.URL))
	i := letter(strings.Repeat("ä", 1<<20))
	i.Key = strings.Repeat("k", 1<<20) + "\xff"
	n.Notify(i)
	require.Less(t, len(r.wait(t, 1)[0]), 3000)
}

// lines collects a log.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestTheURLOfAWebhookIsReplaced replaces the URL while an alert waits at a receiver that is away: the alert goes to the new one, and
// no error names either URL.
func TestTheURLOfAWebhookIsReplaced(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	log := &lines{}
	cfg := quick("http://127.0.0.1:1/hooks/T0P-SECRET")
	cfg.Log, cfg.Retry.Attempts, cfg.Body = zerolog.New(log), 1000, counted
	n := start(t, cfg)
	n.Notify(letter("closed"))
	waitFor(t, n, "attempts", func(s alert.Stats) bool { return s.Attempts > 2 })
	require.ErrorContains(t, n.Replace(""), "cannot be removed without a restart")
	require.ErrorContains(t, n.Replace("ftp://HIDDEN-HOST"), "the URL is none like")
	require.NoError(t, n.Replace(r.URL+"/hooks/SECOND-SECRET"))
	waitFor(t, n, "an alert", func(s alert.Stats) bool { return s.Alerts == 1 })
	require.Len(t, parse(t, r.wait(t, 1)), 1)
	require.Equal(t, "/hooks/SECOND-SECRET", r.last.URL.Path)
	for _, secret := range []string{"T0P-SECRET", "SECOND-SECRET", "HIDDEN-HOST"} {
		require.NotContains(t, log.String(), secret)
	}

	silent := start(t, quick(""))
	require.ErrorContains(t, silent.Replace(r.URL), "cannot be added without a restart")
	require.NoError(t, silent.Replace(""))
}
