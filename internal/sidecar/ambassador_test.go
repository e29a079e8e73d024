//go:build unix

package sidecar_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// ambassadorProgram, as the value of programEnv, makes this binary run troupe ambassador.
const ambassadorProgram = "ambassador"

// quickSession makes a group notice within a second that a member was killed: Apache Kafka allows no session below 6 s, the
// embedded broker does.
func quickSession() []kgo.Opt {
	session := time.Second
	if os.Getenv("TROUPE_KAFKA") != "" {
		session = 6 * time.Second
	}
	return []kgo.Opt{kgo.SessionTimeout(session), kgo.RebalanceTimeout(session * 9 / 10), kgo.HeartbeatInterval(100 * time.Millisecond)}
}

// quickSessionEnv makes an ambassador use quickSession. With the usual session no member is lost while the machine is stalled.
const quickSessionEnv = "TROUPE_SIDECAR_TEST_QUICK_SESSION"

// A house is a service with everything that its ambassador needs.
type house struct {
	t       *testing.T
	pool    *pgxpool.Pool
	brokers []string
	hop     topics.Hop
	service *httptest.Server
	url     string // of the database, with the ambassador's role
	file    string
	environ []string // of its processes
}

func newHouse(t *testing.T, serves http.HandlerFunc, settings ...string) *house {
	t.Helper()
	h := &house{
		t: t, pool: testkit.Database(t), brokers: testkit.Kafka(t), hop: topics.MustHop(testkit.Flow(t), "package"),
		service: httptest.NewServer(serves), file: filepath.Join(t.TempDir(), "ambassador.yaml"),
	}
	t.Cleanup(h.service.Close)
	h.url = grantstest.New(t, h.pool, grants.Ambassador).URL()
	text := fmt.Sprintf("database-url: %s\nbrokers: [%s]\nhop: %s\nservice-url: %s\npartitions: 1\n%s\ncommands:\n  - {type: CreatePackage, path: /packages}\n",
		h.url, strings.Join(h.brokers, ", "), h.hop, h.service.URL, strings.Join(settings, "\n"))
	require.NoError(t, os.WriteFile(h.file, []byte(text), 0o600))
	return h
}

func (h *house) start(args ...string) *process {
	h.t.Helper()
	p := launch(h.t, h.environ, append([]string{ambassadorProgram, "--config", h.file, "--admin", anyPort}, args...)...)
	p.waitReady(http.StatusOK)
	return p
}

// send delivers commands, one for each key.
func (h *house) send(keys ...string) (ids []string) {
	h.t.Helper()
	client, err := kafka.NewClient(h.brokers)
	require.NoError(h.t, err)
	defer client.Close()
	for _, key := range keys {
		m := envelope.Message{
			Topic: h.hop.Commands(), Key: []byte(key), Payload: fmt.Appendf(nil, `{"package":%q}`, key), ID: envelope.NewID(),
			Type: "CreatePackage", ContentType: envelope.JSON, Source: "test",
		}
		ids = append(ids, m.ID)
		require.NoError(h.t, client.ProduceSync(h.t.Context(), kafka.Record(m)).FirstErr())
	}
	return ids
}

func (h *house) waitEvents(n int) (types []string) {
	h.t.Helper()
	testkit.Wait(h.t, "events", func() (bool, error) {
		err := h.pool.QueryRow(h.t.Context(), "SELECT coalesce(array_agg(type ORDER BY position), '{}') FROM troupe.outbox WHERE topic = $1",
			h.hop.Events()).Scan(&types)
		return len(types) >= n, err
	})
	require.Len(h.t, types, n)
	return types
}

// TestAnAmbassadorKilledBetweenPostAndCommitPostsTheSameKeyAgain kills the ambassador (SIGKILL) while the service answers.
func TestAnAmbassadorKilledBetweenPostAndCommitPostsTheSameKeyAgain(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var keys []string
	asked := make(chan struct{})
	h := newHouse(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		first := len(keys) == 1
		mu.Unlock()
		_, _ = io.WriteString(w, `{"ok":`)
		_ = http.NewResponseController(w).Flush()
		if first { // the service has done the work, and sent half of its answer
			close(asked)
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, "true}")
	})
	h.environ = []string{quickSessionEnv + "=1"}
	p := h.start()
	id := h.send("p-1")[0]
	<-asked
	require.NoError(t, p.cmd.Process.Kill())
	<-p.ended
	require.Zero(t, h.count("SELECT count(*) FROM troupe.outbox"))

	p = h.start()
	require.Equal(t, []string{"CreatePackageDone"}, h.waitEvents(1))
	mu.Lock()
	require.GreaterOrEqual(t, len(keys), 2, "the first had no answer")
	for _, key := range keys { // more than two if the second process lost its group for a moment
		require.Equal(t, id, key)
	}
	mu.Unlock()
	require.Zero(t, p.terminate(), p.logs())
}

func (h *house) count(sql string, args ...any) (n int) {
	h.t.Helper()
	require.NoError(h.t, h.pool.QueryRow(h.t.Context(), sql, args...).Scan(&n))
	return n
}

// TestAServiceThatHangsCostsBoundedWork: no more requests run than concurrency allows, other keys wait in Kafka, and the
// waiting commands are done when the service is back.
func TestAServiceThatHangsCostsBoundedWork(t *testing.T) {
	t.Parallel()
	const most, all = 6, 200
	hangs := make(chan struct{})
	var mu sync.Mutex
	now, highest := 0, 0
	h := newHouse(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		now++
		highest = max(highest, now)
		mu.Unlock()
		select {
		case <-hangs:
		case <-r.Context().Done():
		}
		mu.Lock()
		now--
		mu.Unlock()
	}, fmt.Sprintf("concurrency: %d\ntimeout: 5m", most))
	p := h.start()
	var keys []string
	for n := range all {
		keys = append(keys, fmt.Sprintf("p-%03d", n))
	}
	h.send(keys...)
	testkit.Wait(t, "as many requests as there may be", func() (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		return now >= 2, nil // a batch contains the messages that had arrived when it began
	})
	code, page, err := p.get("/metrics")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, page, "troupe_")
	close(hangs)
	h.waitEvents(all)
	mu.Lock()
	defer mu.Unlock()
	require.LessOrEqual(t, highest, most)
	require.Zero(t, p.terminate(), p.logs())
}

// TestAServiceThatIsAwayIsWaitedFor: no command becomes a dead letter, and /readyz has the reason.
func TestAServiceThatIsAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(http.ResponseWriter, *http.Request) {}, "retry-attempts: 1")
	address, listen := place(t)
	p := h.start("--service-url", "http://"+address)
	h.send("p-1", "p-2", "p-3")
	reason := p.waitReady(http.StatusServiceUnavailable).Reason
	require.Contains(t, reason, "the service at http://"+address)
	require.Zero(t, h.count("SELECT count(*) FROM troupe.dead_letters"))

	again := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	l := listen()
	done := make(chan error, 1)
	go func() { done <- again.Serve(l) }()
	h.waitEvents(3)
	p.waitReady(http.StatusOK)
	require.NoError(t, again.Close())
	<-done
	require.Zero(t, p.terminate(), p.logs())
}

// TestADeadLetterOfAnAmbassadorIsTold: after the retry period the webhook is notified, and the command is stored as a dead
// letter.
func TestADeadLetterOfAnAmbassadorIsTold(t *testing.T) {
	t.Parallel()
	told := make(chan string, 10)
	chat := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		told <- string(body)
	}))
	t.Cleanup(chat.Close)
	h := newHouse(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) },
		"retry-400: true", "retry-attempts: 3", "retry-initial: 1ms", "retry-cap: 2ms", "alert-url: "+chat.URL)
	p := h.start()
	h.send("p-1")
	testkit.Wait(t, "the dead letter", func() (bool, error) {
		return h.count("SELECT count(*) FROM troupe.dead_letters WHERE attempts = 3") == 1, nil
	})
	require.Contains(t, <-told, "400 Bad Request")
	require.Equal(t, []string{"troupe.Exhausted"}, h.waitEvents(1))
	require.Zero(t, p.terminate(), p.logs())
}

func TestAServicePostsToItsAmbassadorsOutbox(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef"
	h := newHouse(t, func(http.ResponseWriter, *http.Request) {}, "outbox: "+anyPort, "outbox-token: '"+token+"'")
	p := h.start()
	address := p.address("outbox")
	id := envelope.NewID()
	for _, want := range []int{201, 200} {
		body := fmt.Sprintf(`{"id":%q,"topic":"drone.drone.commands","key":"p-1","type":"GetDrone","payload":{}}`, id)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/outbox", strings.NewReader(body))
		require.NoError(t, err)
		r.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + token}}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := client.Do(r)
		require.NoError(t, err)
		var said map[string]string
		require.NoError(t, json.NewDecoder(response.Body).Decode(&said))
		require.NoError(t, response.Body.Close())
		require.Equal(t, want, response.StatusCode)
		require.Equal(t, id, said["id"])
	}
	require.Equal(t, 1, h.count("SELECT count(*) FROM troupe.outbox WHERE type = 'GetDrone'"))
	require.Zero(t, p.terminate(), p.logs())
}

func TestAnOutboxWithoutATokenAnswersThisMachineOnly(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(http.ResponseWriter, *http.Request) {}, "outbox: "+anyPort)
	p := h.start()
	address := p.address("outbox")
	for host, want := range map[string]int{"outbox.evil.example": 421, "localhost": 201} {
		body := fmt.Sprintf(`{"id":%q,"topic":"drone.drone.commands","key":"p-1","type":"GetDrone","payload":{}}`, envelope.NewID())
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/outbox", strings.NewReader(body))
		require.NoError(t, err)
		r.Host, r.Header = host, http.Header{"Content-Type": {"application/json"}}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := client.Do(r)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, want, response.StatusCode, host)
	}
	require.Equal(t, 1, h.count("SELECT count(*) FROM troupe.outbox WHERE type = 'GetDrone'"))
	require.Zero(t, p.terminate(), p.logs())
}

func TestAnAmbassadorWantsTablesOfItsVersionOrANewerOne(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(http.ResponseWriter, *http.Request) {})
	text, err := os.ReadFile(h.file)
	require.NoError(t, err)
	empty := testkit.EmptyDatabase(t)
	file := strings.Replace(string(text), h.url, empty, 1)
	require.Contains(t, file, empty)
	require.NoError(t, os.WriteFile(h.file, []byte(file), 0o600))
	p := launchToEnd(t, ambassadorProgram, "--config", h.file, "--admin", anyPort)
	require.Equal(t, 1, p.cmd.ProcessState.ExitCode())
	require.Contains(t, p.logs(), "troupe ambassador: the database: version 0 of")
	require.Contains(t, p.logs(), "run outbox-relay migrate, or set migrate")

	q := h.start("--migrate", "true")
	require.Zero(t, q.terminate(), q.logs())

	// Another one of a newer version has migrated since, and this one is started again.
	conn, err := pgx.Connect(t.Context(), empty)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), "INSERT INTO troupe.migrations (version_id, is_applied) VALUES (9999, true)")
	require.NoError(t, err)
	q = h.start()
	require.Zero(t, q.terminate(), q.logs())
	require.Equal(t, 2, launchToEnd(t, ambassadorProgram, "--config", h.file, "--hop", "none").cmd.ProcessState.ExitCode())
}

// place returns an address that refuses connections until listen is called. No other process gets it meanwhile.
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

// launchToEnd launches a process that ends by itself, and waits for it.
func launchToEnd(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, ended: make(chan struct{})}
	executable, err := os.Executable()
	require.NoError(t, err)
	p.cmd = exec.CommandContext(t.Context(), executable, args...)
	p.cmd.Env = []string{programEnv + "=1", "PATH=" + os.Getenv("PATH")}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	stdin, err := p.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	_ = p.cmd.Wait()
	_ = stdin.Close()
	return p
}

func TestAnAmbassadorMakesTheRequestsOfTheStepsOfASaga(t *testing.T) {
	t.Parallel()
	requests := make(chan string, 1)
	h := newHouse(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- fmt.Sprintf("%s %s %s", r.Method, r.URL.Path, body)
		_, _ = io.WriteString(w, `{"reservation_id":"r-7"}`)
	})
	text, err := os.ReadFile(h.file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(h.file, append(text, "  - {type: troupe.Call}\n"...), 0o600))
	h.start()
	client, err := kafka.NewClient(h.brokers)
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.ProduceSync(t.Context(), kafka.Record(envelope.Message{
		Topic: h.hop.Commands(), Key: []byte("t-1"), ID: envelope.NewID(), Type: saga.CallType, ContentType: envelope.JSON, Source: "test",
		Payload: []byte(`{"method":"PUT","path":"/trips/t-1/rooms","body":{"nights":2}}`),
	})).FirstErr())
	require.Equal(t, `PUT /trips/t-1/rooms {"nights":2}`, <-requests)
	require.Equal(t, []string{saga.CallDone}, h.waitEvents(1))
}
