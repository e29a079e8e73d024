package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/door/doortest"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/testkit"
)

// serving is a running command that serves a console.
type serving struct {
	t       *testing.T
	cmd     *exec.Cmd
	lines   *bufio.Scanner
	said    strings.Builder
	address string
}

// serve starts a command, and returns when it has printed the console's address.
func serve(t *testing.T, env []string, args ...string) *serving {
	s := &serving{t: t, cmd: command(t, env, args...)}
	out, err := s.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	s.lines = bufio.NewScanner(out)
	s.address, _, _ = strings.Cut(s.until("console: "), " ")
	return s
}

// until reads the command's output up to a line with text, and returns the rest of that line.
func (s *serving) until(text string) string {
	s.t.Helper()
	for s.lines.Scan() {
		s.said.WriteString(s.lines.Text() + "\n")
		if _, rest, is := strings.Cut(s.lines.Text(), text); is {
			return rest
		}
	}
	require.Fail(s.t, "it never says "+text, s.said.String())
	return ""
}

// end sends SIGTERM and waits for the end.
func (s *serving) end() (status int, said string) {
	require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGTERM))
	for s.lines.Scan() {
		s.said.WriteString(s.lines.Text() + "\n")
	}
	_ = s.cmd.Wait() // the exit status is read below
	return s.cmd.ProcessState.ExitCode(), s.said.String()
}

func fetch(t *testing.T, address string, header http.Header) (status int, body string) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	require.NoError(t, err)
	r.Header = header
	a, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	return a.StatusCode, string(text)
}

func TestConsoleServesUntilItIsAskedToStop(t *testing.T) {
	t.Parallel()
	url := "order=" + testkit.DatabaseURL(t, testkit.Database(t))
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("a token of some length\n"), 0o600))
	c := serve(t, []string{"TROUPE_DATABASES=" + url}, "console", "--listen", "127.0.0.1:0", "--token-file", file)
	status, body := fetch(t, c.address, http.Header{"Accept": {"application/json"}})
	require.Equal(t, http.StatusOK, status)
	var o struct {
		Databases []struct{ Database, Error string }
	}
	require.NoError(t, json.Unmarshal([]byte(body), &o))
	require.Equal(t, "order", o.Databases[0].Database)
	require.Empty(t, o.Databases[0].Error)
	_, page := fetch(t, c.address, http.Header{"Accept": {"text/html"}})
	require.Contains(t, page, "Sign in to act")
	doortest.RequireLimit(t, strings.Trim(strings.TrimPrefix(c.address, "http://"), "/"), "/sign-in")
	code, said := c.end()
	require.Equal(t, exitDone, code, said)
	require.NotContains(t, said, "a token of some length")
}

// TestAConsoleBehindAProxyWantsATokenForReading: the console listens on loopback, and everyone who reaches the proxy reaches the console.
func TestAConsoleBehindAProxyWantsATokenForReading(t *testing.T) {
	t.Parallel()
	url := "order=" + testkit.DatabaseURL(t, testkit.Database(t))
	for _, proxied := range []string{"--host=console.example", "--https"} {
		c := serve(t, []string{"TROUPE_DATABASES=" + url, "TROUPE_CONSOLE_TOKEN=a token of some length"}, "console", "--listen", "127.0.0.1:0", proxied)
		t.Cleanup(func() { _ = c.cmd.Process.Kill() }) // after a check that fails
		asks := http.Header{"Accept": {"application/json"}}
		got, _ := fetch(t, c.address, asks)
		require.Equal(t, http.StatusUnauthorized, got, proxied)
		asks.Set("Authorization", "Bearer a token of some length")
		got, _ = fetch(t, c.address, asks)
		require.Equal(t, http.StatusOK, got, proxied)
		code, said := c.end()
		require.Equal(t, exitDone, code, said)

		o := finish(t, command(t, []string{"TROUPE_DATABASES=order=postgres://localhost:1/order"}, "console", "--listen", "127.0.0.1:0", proxied))
		require.Equal(t, exitUsage, o.status, o.stderr)
		require.Contains(t, o.stderr, "through the proxy: set a token")
	}
}

func TestConsoleReadsItsTokenAgainAtAHangUp(t *testing.T) {
	t.Parallel()
	url := "order=" + testkit.DatabaseURL(t, testkit.Database(t))
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("a token of some length\n"), 0o600))
	c := serve(t, []string{"TROUPE_DATABASES=" + url, "SCHEMA_REGISTRY_URL=http://127.0.0.1:1"}, "console", "--listen", "127.0.0.1:0", "--token-file", file)
	act := func(token string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.address+"relay/act", strings.NewReader("do=pause"))
		require.NoError(t, err)
		r.Header = http.Header{"Accept": {"application/json"}, "Authorization": {"Bearer " + token}, "Content-Type": {"application/x-www-form-urlencoded"}}
		a, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, a.Body.Close())
		return a.StatusCode
	}
	require.Equal(t, http.StatusBadRequest, act("a token of some length"))
	for _, next := range []string{"short", "another token of some length"} {
		require.NoError(t, os.WriteFile(file, []byte(next), 0o600))
		require.NoError(t, c.cmd.Process.Signal(syscall.SIGHUP))
		if next == "short" {
			c.until("the earlier ones stay")
			require.Equal(t, http.StatusBadRequest, act("a token of some length"))
		}
	}
	c.until("were read again")
	require.Equal(t, http.StatusBadRequest, act("another token of some length"))
	require.Equal(t, http.StatusUnauthorized, act("a token of some length"))
	code, said := c.end()
	require.Equal(t, exitDone, code, said)
	require.NotContains(t, said, "of some length")
}

// TestConsoleReadsItsRegistryAgainAtAHangUp shows a payload whose schema the first registry does not have. The password of the second
// one is wrong in the first file that names it.
func TestConsoleReadsItsRegistryAgainAtAHangUp(t *testing.T) {
	t.Parallel()
	empty, fake := srfake.New(), srfake.New()
	t.Cleanup(empty.Close)
	t.Cleanup(fake.Close)
	open, err := schemas.NewRegistry(fake.URL())
	require.NoError(t, err)
	id, err := open.Register(t.Context(), "Charge", `{"type":"record","name":"Charge","fields":[{"name":"order","type":"string"}]}`)
	require.NoError(t, err)
	behind, err := url.Parse(fake.URL())
	require.NoError(t, err)
	passes := httputil.NewSingleHostReverseProxy(behind)
	guarded := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, given, _ := r.BasicAuth(); given != "right-secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		passes.ServeHTTP(w, r)
	}))
	t.Cleanup(guarded.Close)
	at := func(password string) string {
		return strings.Replace(guarded.URL, "http://", "http://troupe:"+password+"@", 1)
	}

	pool := testkit.Database(t)
	var letter string
	require.NoError(t, pool.QueryRow(t.Context(), `
INSERT INTO troupe.dead_letters (consumer_group, handler, error_class, error, attempts, topic, topic_id, partition, "offset", headers, payload,
  message_id, message_type, correlation_id, first_failed_at, last_failed_at)
VALUES ('g', 'h', 'permanent', 'no', 1, 't', gen_random_uuid(), 0, 0, $1, $2, 'm', 'Charge', 'c', now(), now()) RETURNING id::text`,
		envelope.MarshalHeaders([]envelope.Header{{Key: ce.HeaderContentType, Value: []byte(envelope.Avro)}}),
		append(binary.BigEndian.AppendUint32([]byte{0}, id), "\x06o-7"...)).Scan(&letter))
	folder := t.TempDir()
	file, config := filepath.Join(folder, "registry"), filepath.Join(folder, "console.yaml")
	require.NoError(t, os.WriteFile(file, []byte(empty.URL()), 0o600))
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, "registry: {file: %s}\ntoken: a token of some length\n", file), 0o600))
	c := serve(t, []string{"TROUPE_DATABASES=order=" + testkit.DatabaseURL(t, pool)}, "console", "--listen", "127.0.0.1:0", "--config", config)
	shows := func() string {
		t.Helper()
		status, body := fetch(t, c.address+"dead-letter?db=order&id="+letter, http.Header{
			"Accept": {"application/json"}, "Authorization": {"Bearer a token of some length"},
		})
		require.Equal(t, http.StatusOK, status, body)
		return body
	}
	require.NotContains(t, shows(), "o-7")
	for _, next := range []struct{ registry, line string }{
		{"http://troupe:right-secret@registry.example", "the earlier ones stay"},
		{"", "the earlier ones stay"},
		{at("wrong-secret"), "were read again"},
		{at("right-secret"), "were read again"},
	} {
		require.NoError(t, os.WriteFile(file, []byte(next.registry), 0o600))
		require.NoError(t, c.cmd.Process.Signal(syscall.SIGHUP))
		c.until(next.line)
		if next.registry != at("right-secret") {
			require.NotContains(t, shows(), "o-7", next.registry)
		}
	}
	testkit.Wait(t, "the payload", func() (bool, error) { return strings.Contains(shows(), "o-7"), nil }) // a failure is kept for seconds
	code, said := c.end()
	require.Equal(t, exitDone, code, said)
	require.NotContains(t, said, "-secret")
}

func TestConsoleSaysWhatItCannotDo(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	database := "order=postgres://localhost:1/order"
	for want, args := range map[string][]string{
		"no server is given":  {},
		"want host:port":      {"--database", database, "--listen", "8090"},
		"want a token":        {"--database", database, "--listen", "0.0.0.0:0"},
		"is empty":            {"--database", database, "--token-file", empty},
		"--token-file: open":  {"--database", database, "--token-file", empty + "x"},
		"want name=URL":       {"--database", "postgres://localhost/order"},
		"want --flow as well": {"--database", database, "--brokers", "localhost:1"},
	} {
		o := finish(t, command(t, nil, append([]string{"console", "--listen", "127.0.0.1:0"}, args...)...))
		require.Equal(t, exitUsage, o.status, "%v: %+v", args, o)
		require.Contains(t, o.stderr, want)
	}
	o := finish(t, command(t, nil, "demo", "--console=0.0.0.0:80"))
	require.Equal(t, exitUsage, o.status)
	require.Contains(t, o.stderr, "this machine's own")
}

// The demo's console has data, and the run continues with its checks after SIGTERM.
func TestADemoStaysUpWithItsConsole(t *testing.T) {
	t.Parallel()
	env := []string{"TROUPE_POSTGRES=" + testkit.Postgres(t).URL("")}
	c := serve(t, env, "demo", "--limit", "5", "--console=127.0.0.1:0")
	c.until("all orders have ended")
	_, body := fetch(t, c.address+"sagas?status=completed", http.Header{"Accept": {"application/json"}})
	var list struct{ Sagas []struct{} }
	require.NoError(t, json.Unmarshal([]byte(body), &list))
	require.Len(t, list.Sagas, 5)
	_, trace := fetch(t, c.address+"messages?q=cdnow-00001", http.Header{"Accept": {"application/json"}})
	require.Contains(t, trace, "OrderCompleted", "Kafka is read, too")
	code, said := c.end()
	require.Equal(t, exitDone, code, said)
	require.Contains(t, said, "checking")
}

// A choreographed demo is watched while its console is up.
func TestADemoWithoutACoordinatorShowsItsFlows(t *testing.T) {
	t.Parallel()
	env := []string{"TROUPE_POSTGRES=" + testkit.Postgres(t).URL("")}
	c := serve(t, env, "demo", "--style", "choreography", "--limit", "5", "--console=127.0.0.1:0")
	c.until("all orders have ended")
	testkit.Wait(t, "five flows that are completed", func() (bool, error) {
		_, body := fetch(t, c.address+"flows?status=completed", http.Header{"Accept": {"application/json"}})
		var list struct{ Flows []struct{ Key string } }
		err := json.Unmarshal([]byte(body), &list)
		return len(list.Flows) == 5, err
	})
	code, said := c.end()
	require.Equal(t, exitDone, code, said)
}

func TestConsoleWantsTheURLOfAWatchersDatabase(t *testing.T) {
	t.Parallel()
	o := finish(t, command(t, nil, "console", "--database", "order=postgres://localhost:1/order", "--watch", "postgres://u:secret@host:x/watch"))
	require.Equal(t, exitUsage, o.status, "%+v", o)
	require.Contains(t, o.stderr, "--watch or TROUPE_WATCH_DATABASE: not a connection string")
	require.NotContains(t, o.stderr, "secret")
}
