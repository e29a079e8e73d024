package flow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// webhook is a receiver of alerts. answer returns the status of the nth request, from 1; nil: 200.
type webhook struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []alertBody
	answer func(n int) int
}

type alertBody struct {
	Text    string
	Service string
	Alerts  []struct {
		ID, Status, Expectation, Key string
		Expects                      []string
		DueAt                        time.Time  `json:"due_at"`
		MissedAt                     time.Time  `json:"missed_at"`
		CameAt                       *time.Time `json:"came_at"`
	}
}

func newWebhook(t testing.TB, answer func(n int) int) *webhook {
	t.Helper()
	w := &webhook{answer: answer}
	w.Server = httptest.NewServer(http.HandlerFunc(func(to http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		var body alertBody
		if err == nil {
			err = json.Unmarshal(text, &body)
		}
		if err != nil || r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("a request with header %q and body %q: %v", r.Header, text, err)
		}
		w.mu.Lock()
		w.bodies = append(w.bodies, body)
		n := len(w.bodies)
		w.mu.Unlock()
		if w.answer != nil {
			to.WriteHeader(w.answer(n))
		}
	}))
	t.Cleanup(w.Close)
	return w
}

// told returns the alerts of all requests, as status, key and id.
func (w *webhook) told() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.bodies {
		for _, a := range b.Alerts {
			all = append(all, a.Status+" "+a.Key+" "+a.ID)
		}
	}
	return all
}

// texts returns the texts of all requests.
func (w *webhook) texts() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.bodies {
		all = append(all, b.Text)
	}
	return all
}

// await waits until n alerts were posted.
func (w *webhook) await(t testing.TB, n int) []string {
	t.Helper()
	testkit.Wait(t, fmt.Sprintf("%d alerts", n), func() (bool, error) { return len(w.told()) >= n, nil })
	return w.told()
}

// withAlerts lets a stage's services post alerts to w, and changes their declared expectation.
func withAlerts(t testing.TB, w *webhook, change func(*flow.Expectation), more ...func(*flow.Service)) testkit.StageConfig {
	return testkit.StageConfig{
		Hop: "watch", Participant: participant.Config{Retry: quick},
		Handlers: func(s *testkit.Stage, p *participant.Participant) {
			service, err := flow.New(flow.Config{
				Participant: p, Declared: watching(s.Hop.Flow(), change), Log: testkit.Logger(t),
				AlertURL: w.URL, AlertHeader: http.Header{"Authorization": {"Bearer secret"}},
			})
			require.NoError(t, err)
			flow.OnMissed(service, "shipped", raiseTimedOut)
			for _, m := range more {
				m(service)
			}
		},
	}
}

func watching(name string, change func(*flow.Expectation)) flow.Declaration {
	e := flow.Expectation{
		Name: "shipped", After: events(name, "payment", "Paid"), Within: "30s", Raise: events(name, "watch", "TimedOut"),
		Expect: []flow.Message{events(name, "shipping", "Shipped"), events(name, "shipping", "Refused")},
	}
	if change != nil {
		change(&e)
	}
	return flow.Declaration{Hop: name + ".watch", Expectations: []flow.Expectation{e}}
}

func raiseTimedOut(_ context.Context, _ pgx.Tx, m flow.Missed) (participant.Outcome, error) {
	return participant.Refuse(TimedOut{Missing: []string{m.Key}}), nil
}

// network dials the broker, and can be cut.
type network struct {
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func (n *network) dial(ctx context.Context, kind, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut {
		return nil, &net.OpError{Op: "dial", Net: kind, Err: net.ErrClosed}
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, kind, address)
	if err == nil {
		n.conns = append(n.conns, conn)
	}
	return conn, err
}

func (n *network) set(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
	for _, conn := range n.conns {
		_ = conn.Close()
	}
	n.conns = nil
}

// TestMissedExpectationsAreAlertedWhileTheBrokerIsAway also checks that each missing key is named, that met ones are not, and that
// an event that waited in the broker is reported as late under the id of its first alert.
func TestMissedExpectationsAreAlertedWhileTheBrokerIsAway(t *testing.T) {
	t.Parallel()
	w := newWebhook(t, nil)
	var way network
	cfg := withAlerts(t, w, func(e *flow.Expectation) { e.Within = "3s" })
	cfg.Participant.Kafka = []kgo.Opt{kgo.Dialer(way.dial)}
	s := testkit.NewStage(t, cfg)
	s.Send(event(s, "shipping", "o-0", Shipped{}), event(s, "payment", "o-0", Paid{1}))
	s.Send(event(s, "payment", "o-1", Paid{1}), event(s, "payment", "<o-2>", Paid{1}), event(s, "payment", "o-3", Paid{1}))
	s.Settle()
	way.set(true)
	s.Send(event(s, "shipping", "o-1", Shipped{})) // it waits in the broker
	told := w.await(t, 3)
	var keys []string
	ids := make(map[string]string)
	for _, a := range told {
		of := strings.Fields(a)
		require.Equal(t, "missing", of[0])
		keys, ids[of[1]] = append(keys, of[1]), of[2]
	}
	slices.Sort(keys)
	require.Equal(t, []string{"<o-2>", "o-1", "o-3"}, keys)
	text := strings.Join(w.texts(), "\n")
	for _, key := range []string{"‹o-2›", "o-1", "o-3"} {
		require.Contains(t, text, key)
	}
	var lag time.Duration
	require.NoError(t, s.Pool.QueryRow(t.Context(), "SELECT max(missed_at - due_at) FROM troupe.expectations").Scan(&lag))
	t.Logf("recorded at most %s after their time", lag)
	require.Empty(t, said(s), "no member has handled a deadline")

	way.set(false)
	came := w.await(t, 4)[3]
	require.Equal(t, "late o-1 "+ids["o-1"], came)
	require.Equal(t, 1, count(t, s, "SELECT count(*) FROM troupe.expectations WHERE missed_at < met_at AND raised_at IS NULL"))
	s.Advance(time.Minute)
	s.Settle()
	require.Len(t, said(s), 2, "the one that has come is not raised")
	require.Zero(t, count(t, s, "SELECT count(*) FROM troupe.expectations WHERE key <> 'o-0' AND (alert_at IS NOT NULL OR alerted_at IS NULL)"))
	require.Len(t, w.told(), 4)
}

// TestEachMissedKeyIsAlertedOnceByManyMembers starts three members behind the time of 250 expectations, as after an outage of
// the whole service.
func TestEachMissedKeyIsAlertedOnceByManyMembers(t *testing.T) {
	t.Parallel()
	w := newWebhook(t, nil)
	pool := testkit.Database(t)
	hop := topics.MustHop(testkit.Flow(t), "watch")
	overdue(t, pool, hop, 250)
	for range 3 {
		runLocal(t, pool, hop, w.URL)
	}
	w.await(t, 250)
	testkit.Wait(t, "all stored as told", func() (bool, error) {
		var left int
		err := pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.expectations WHERE alert_at IS NOT NULL OR alerted_at IS NULL").Scan(&left)
		return left == 0, err
	})
	all := w.told()
	slices.Sort(all)
	require.Equal(t, 250, len(slices.Compact(all)))
	require.Equal(t, 250, len(w.told()))
	for _, b := range w.bodies {
		require.LessOrEqual(t, len(b.Alerts), 100)
		if len(b.Alerts) > 20 {
			require.Contains(t, b.Text, fmt.Sprintf(" and %d more", len(b.Alerts)-20))
		}
	}
}

// TestAnAlertThatIsNotAcceptedIsPostedAgainWithItsID answers 503, 404, and ends the member in the middle of a request.
func TestAnAlertThatIsNotAcceptedIsPostedAgainWithItsID(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{})
	ended := make(chan struct{})
	w := newWebhook(t, func(n int) int {
		switch n {
		case 1:
			return http.StatusServiceUnavailable
		case 2:
			return http.StatusNotFound
		case 3:
			close(entered)
			<-ended
		}
		return http.StatusOK
	})
	pool := testkit.Database(t)
	hop := topics.MustHop(testkit.Flow(t), "watch")
	overdue(t, pool, hop, 2)
	stop := runLocal(t, pool, hop, w.URL)
	<-entered
	stop()
	close(ended)
	runLocal(t, pool, hop, w.URL)
	all := w.await(t, 8)
	slices.Sort(all)
	require.Len(t, slices.Compact(all), 2, "the same two ids, four times")
}

// TestAnEventThatComesWhileItsAlertIsPostedIsReportedAfterIt lets the event come before the receiver has answered.
func TestAnEventThatComesWhileItsAlertIsPostedIsReportedAfterIt(t *testing.T) {
	t.Parallel()
	entered, answered := make(chan struct{}), make(chan struct{})
	w := newWebhook(t, func(n int) int {
		if n == 1 {
			close(entered)
			<-answered
		}
		return http.StatusOK
	})
	s := testkit.NewStage(t, withAlerts(t, w, nil))
	s.Send(event(s, "payment", "o-1", Paid{1}))
	s.Settle()
	s.Advance(time.Minute)
	<-entered
	s.Send(event(s, "shipping", "o-1", Shipped{}))
	s.Settle()
	require.Equal(t, 1, count(t, s, "SELECT count(*) FROM troupe.expectations WHERE met_at IS NOT NULL"))
	close(answered)
	told := w.await(t, 2)
	require.Contains(t, told[0], "missing o-1 ")
	require.Equal(t, strings.Replace(told[0], "missing", "late", 1), told[1])
}

// TestAnEventThatComesLateIsReportedByAnEvent sends expected events after the raised one, again, and before it.
func TestAnEventThatComesLateIsReportedByAnEvent(t *testing.T) {
	t.Parallel()
	w := newWebhook(t, nil)
	s := testkit.NewStage(t, lateStage(t, w))
	s.Send(event(s, "payment", "o-1", Paid{1}), event(s, "payment", "o-2", Paid{1}))
	s.Settle()
	s.Send(event(s, "shipping", "o-2", Shipped{}))
	s.Settle()
	s.Advance(time.Minute)
	s.Settle()
	s.Send(failure(s, "shipping", "o-1", Refused{"broken"}), event(s, "shipping", "o-1", Shipped{}), event(s, "shipping", "o-2", Shipped{}))
	s.Settle()
	want := []string{`failure o-1 TimedOut {"Missing":["o-1"]}`, `success o-1 Notify {"Text":"Refused"}`}
	require.Equal(t, want, said(s))
	s.Replay()
	s.Settle()
	require.Equal(t, want, said(s))
	told := w.await(t, 2)
	require.Contains(t, told[1], "late o-1 ")
}

// TestALateEventIsReportedOnceWhereverItIsInterrupted cuts the connection at each statement.
func TestALateEventIsReportedOnceWhereverItIsInterrupted(t *testing.T) {
	t.Parallel()
	cfg := lateStage(t, newWebhook(t, nil))
	testkit.CrashAtEveryStep(t, cfg, func(s *testkit.Stage) envelope.Message {
		s.Send(event(s, "payment", "o-1", Paid{1}))
		s.Settle()
		s.Advance(time.Minute)
		s.Settle()
		return event(s, "shipping", "o-1", Shipped{})
	}, testkit.Query("SELECT met_at IS NULL, raised_at IS NULL FROM troupe.expectations"))
}

// TestALateHandlerFitsTheDeclaration checks the errors of Run.
func TestALateHandlerFitsTheDeclaration(t *testing.T) {
	t.Parallel()
	late := func(context.Context, pgx.Tx, flow.Late) (participant.Outcome, error) { return participant.Done(), nil }
	for why, test := range map[string]struct {
		declared bool
		handlers int
	}{
		"add late to the declaration":      {false, 1},
		"register one with flow.OnLate":    {true, 0},
		"OnLate is called twice":           {true, 2},
		"Run is called, and is ended here": {true, 1},
	} {
		pool, hop := testkit.Database(t), topics.MustHop("f", "watch")
		p, err := participant.New(participant.Config{Pool: pool, Hop: hop, Local: true})
		require.NoError(t, err)
		s, err := flow.New(flow.Config{Participant: p, Declared: watching("f", func(e *flow.Expectation) {
			if test.declared {
				e.Late = []flow.Message{events("f", "watch", "Notify")}
			}
		})})
		require.NoError(t, err)
		flow.OnMissed(s, "shipped", raiseTimedOut)
		for range test.handlers {
			flow.OnLate(s, "shipped", late)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.Run(ctx); strings.HasPrefix(why, "Run") {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, why)
		}
	}
}

// lateStage returns a service that reports late events with Notify.
func lateStage(t testing.TB, w *webhook) testkit.StageConfig {
	return withAlerts(t, w, func(e *flow.Expectation) {
		name, _, _ := strings.Cut(e.Raise.Topic, ".")
		e.Late = []flow.Message{events(name, "watch", "Notify")}
	}, func(s *flow.Service) {
		flow.OnLate(s, "shipped", func(_ context.Context, _ pgx.Tx, l flow.Late) (participant.Outcome, error) {
			return participant.Succeed(Notify{l.Message.Type}), nil
		})
	})
}

// overdue inserts expectations whose time was over a minute ago.
func overdue(t testing.TB, pool *pgxpool.Pool, hop topics.Hop, n int) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `
		INSERT INTO troupe.expectations (consumer_group, name, key, after_at, due_at, alert_id, headers)
		SELECT $1, 'shipped', 'o-' || n, now() - interval '2 minutes', now() - interval '1 minute', gen_random_uuid(), '' FROM generate_series(1, $2) AS n`,
		hop.String(), n)
	require.NoError(t, err)
}

// runLocal runs a member that needs no broker, until the test ends or stop is called.
func runLocal(t testing.TB, pool *pgxpool.Pool, hop topics.Hop, url string) (stop func()) {
	t.Helper()
	p, err := participant.New(participant.Config{Pool: pool, Hop: hop, Local: true, Log: testkit.Logger(t)})
	require.NoError(t, err)
	s, err := flow.New(flow.Config{
		Participant: p, Declared: watching(hop.Flow(), nil), Log: testkit.Logger(t),
		AlertURL: url, AlertHeader: http.Header{"Authorization": {"Bearer secret"}},
	})
	require.NoError(t, err)
	flow.OnMissed(s, "shipped", raiseTimedOut)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	return stop
}
