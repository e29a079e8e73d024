//go:build unix

package sidecar_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/door"
	"github.com/troupe-go/troupe/internal/door/doortest"
	"github.com/troupe-go/troupe/testkit"
)

const token = "s3cr3t-0123456789abcdef"

// ask sends a request with a token, or without one.
func (p *process) ask(method, path, token, body string) (code int, text string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, "http://"+p.admin+path, strings.NewReader(body))
	require.NoError(p.t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return p.send(req)
}

// askAs sends a GET with another Host to the process.
func (p *process) askAs(host, path string) (code int, text string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+p.admin+path, nil)
	require.NoError(p.t, err)
	req.Host = host
	return p.send(req)
}

func (p *process) send(req *http.Request) (code int, text string) {
	p.t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(p.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	return resp.StatusCode, string(b)
}

func tokenFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte(token+"\n"), 0o600))
	return path
}

const someID = "019aa6f0-7c1d-7d3a-9d0b-6f3b1c2d4e5f"

var actions = []string{
	"POST /pause", "POST /resume", "POST /parked/" + someID + "/retry", "POST /parked/" + someID + "/discard", "POST /replay", "DELETE /replay",
}

func TestWithoutATokenThereAreNoActionsAndNothingButLoopback(t *testing.T) {
	t.Parallel()
	environ, _, _ := site(t)
	p := start(t, environ)
	p.waitReady(http.StatusOK)
	for _, action := range actions {
		method, path, _ := strings.Cut(action, " ")
		for _, given := range []string{"", token, "x"} {
			code, text := p.ask(method, path, given, "{}")
			require.Equal(t, http.StatusForbidden, code, action)
			require.Contains(t, text, "OUTBOX_RELAY_ADMIN_TOKEN_FILE")
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/status", "/metrics", "/parked"} {
		code, _ := p.ask("GET", path, "", "")
		require.Equal(t, http.StatusOK, code, path)
	}
	for _, path := range []string{"/status", "/metrics", "/parked", "/replay"} { // as a web page of another site may request
		code, text := p.askAs("relay.evil.example", path)
		require.Equal(t, http.StatusMisdirectedRequest, code, path)
		require.Contains(t, text, "set a token", path)
	}
	code, text := p.askAs("relay.evil.example", "/readyz")
	require.Equal(t, http.StatusOK, code)
	require.NotContains(t, text, "role")
	code, _ = p.askAs("relay.evil.example", "/readyz?outbox=guessed")
	require.Equal(t, http.StatusMisdirectedRequest, code)
	code, _ = p.ask("GET", "/readyz?outbox=none", "", "")
	require.Equal(t, http.StatusNotFound, code)
	for _, topic := range []string{"%00", "%ff"} {
		code, text = p.ask("GET", "/parked?topic="+topic, "", "")
		require.Equal(t, http.StatusBadRequest, code)
		require.Contains(t, text, "topic: want text in UTF-8")
	}
	for _, address := range []string{"0.0.0.0:8089", ":8089", "[::]:8089", "192.0.2.1:8089", "relay.example:8089"} {
		r := run(t, environ, "run", "--admin", address)
		require.Equal(t, 2, r.code, address)
		require.Contains(t, r.stderr, "an address of loopback")
		require.Contains(t, r.stderr, "--admin-token-file")
	}
	r := run(t, append(environ, "OUTBOX_RELAY_ADMIN_TOKEN=s3cr3t"), "run", "--admin", "0.0.0.0:0")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.stderr, "want 16 characters or more")
	require.NotContains(t, r.stderr, "s3cr3t")
}

// TestManyConnectionsToTheAdminPortLeaveRoomForProbes: 4,000 connections with headers of 60 kB took half a gigabyte, and a relay's usual
// limit is 128 MiB. A header has no token until it is read.
func TestManyConnectionsToTheAdminPortLeaveRoomForProbes(t *testing.T) {
	t.Parallel()
	environ, _, _ := site(t)
	p := start(t, environ, "--admin-token-file", tokenFile(t))
	doortest.RequireLimit(t, p.admin, "/livez")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.admin+"/livez", nil)
	require.NoError(t, err)
	request.Header.Set("Long", strings.Repeat("x", 24<<10))
	code, _ := p.send(request)
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, code)
}

func TestWithATokenAllButTheProbesWantIt(t *testing.T) {
	t.Parallel()
	environ, _, _ := site(t)
	p := start(t, environ, "--admin-token-file", tokenFile(t))
	p.waitReady(http.StatusOK)
	wrong := []string{"x", token + "x", token[1:], " " + token}
	for n, request := range append([]string{"GET /status", "GET /metrics", "GET /parked", "GET /replay"}, actions...) {
		method, path, _ := strings.Cut(request, " ")
		given := []string{""}
		if n < len(wrong) {
			given = append(given, wrong[n])
		}
		for _, given := range given {
			code, _ := p.ask(method, path, given, "{}")
			require.Equal(t, http.StatusUnauthorized, code, request)
		}
		code, _ := p.ask(method, path, token, "{}")
		require.NotEqual(t, http.StatusUnauthorized, code, request)
		require.NotEqual(t, http.StatusForbidden, code, request)
	}
	code, _ := p.ask("GET", "/livez", "", "")
	require.Equal(t, http.StatusOK, code)

	code, _ = p.ask("POST", "/pause", token, "")
	require.Equal(t, http.StatusOK, code)
	code, _ = p.ask("GET", "/readyz?outbox=guessed", "", "")
	require.Equal(t, http.StatusUnauthorized, code, "it would tell the names of outboxes")
	code, text := p.ask("GET", "/readyz", "", "")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.NotContains(t, text, "paused", "why is for who has the token")
	code, text = p.ask("GET", "/readyz", token, "")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, text, "paused for")
	r := run(t, []string{"OUTBOX_RELAY_ADMIN_TOKEN=" + token}, "healthcheck", "--admin", p.admin)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "not ready: paused for")
	for range door.AttemptsAtOnce {
		_, _ = p.ask("GET", "/status", "x", "")
	}
	code, text = p.ask("GET", "/status", token, "")
	require.Equal(t, http.StatusTooManyRequests, code)
	require.Contains(t, text, "too many wrong tokens")
	require.Equal(t, 0, p.terminate())
	require.NotContains(t, p.logs(), "s3cr3t")
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	environ, conn, topic := site(t)
	path := configFile(t, "batch: 1000\n")
	p := start(t, environ, "--admin-token-file", tokenFile(t), "--config", path)
	p.waitReady(http.StatusOK)
	insert(t, conn, topic, "k")
	consumer := testkit.Consume(t, testkit.Kafka(t), topic)
	consumer.WaitN(1)

	code, text := p.ask("POST", "/pause", token, "")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, text, conn.Config().Database)
	p.waitReady(http.StatusServiceUnavailable)
	_, metrics := p.ask("GET", "/metrics", token, "")
	require.Contains(t, metrics, `outbox_relay_paused{outbox="`+conn.Config().Database+`"} 1`)

	// A relay that is started again stays paused.
	require.NoError(t, os.WriteFile(path, []byte("batch: 10\n"), 0o600))
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	testkit.Wait(t, "the reload", func() (bool, error) { return strings.Contains(p.logs(), "reload: done"), nil })
	insert(t, conn, topic, "k")
	testkit.Wait(t, "the new relay's lease", func() (bool, error) {
		_, metrics := p.ask("GET", "/metrics", token, "")
		return strings.Contains(metrics, `outbox_relay_lease_term{outbox="`+conn.Config().Database+`"} 2`), nil
	})
	_, text = p.ask("GET", "/status", token, "")
	require.Contains(t, text, "paused_since")
	require.Contains(t, text, `"pending": 1`)
	require.Len(t, consumer.Records(), 1)

	code, _ = p.ask("POST", "/resume?outbox="+conn.Config().Database, token, "")
	require.Equal(t, http.StatusOK, code)
	consumer.WaitN(2)
	p.waitReady(http.StatusOK)
	code, _ = p.ask("POST", "/pause?outbox=none", token, "")
	require.Equal(t, http.StatusNotFound, code)
	require.Equal(t, 0, p.terminate())
	require.Contains(t, p.logs(), `"action":"pause"`)
}

// park inserts parked rows and returns their ids.
func park(t *testing.T, conn *pgx.Conn, topic string, n int) (ids []string) {
	t.Helper()
	for i := range n {
		insert(t, conn, topic, fmt.Sprintf("k-%d", i))
	}
	_, err := conn.Exec(t.Context(), `INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, attempts, max_attempts, last_error)
		SELECT position, id, topic, key::bytea, 'parked', 5, 8, 'MESSAGE_TOO_LARGE' FROM troupe.outbox`)
	require.NoError(t, err)
	rows, err := conn.Query(t.Context(), "SELECT id::text FROM troupe.outbox_failures ORDER BY position")
	require.NoError(t, err)
	ids, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return ids
}

type audit struct {
	Actor, Action, Reason, Topic, Last string
	Attempts                           int
	Payload                            *string
}

func audits(t *testing.T, conn *pgx.Conn, id string) []audit {
	t.Helper()
	rows, err := conn.Query(t.Context(), `SELECT actor, action, reason, topic, last_error, attempts, convert_from(payload, 'UTF8')
		FROM troupe.outbox_repairs WHERE row_id = $1 ORDER BY position`, id)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[audit])
	require.NoError(t, err)
	return all
}

func count(t *testing.T, conn *pgx.Conn, sql string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), sql, args...).Scan(&n))
	return n
}

func TestParkedRowsOverHTTP(t *testing.T) {
	t.Parallel()
	environ, conn, topic := site(t)
	ids := park(t, conn, topic, 5)
	p := start(t, append(environ, "OUTBOX_RELAY_SOURCE=wal"), "--admin-token-file", tokenFile(t))
	p.waitReady(http.StatusOK)

	var seen []string
	for after := int64(0); ; {
		code, text := p.ask("GET", fmt.Sprintf("/parked?limit=2&topic=%s&after=%d", topic, after), token, "")
		require.Equal(t, http.StatusOK, code)
		var page struct {
			Rows []struct {
				ID, Key   string
				LastError string `json:"last_error"`
			}
			Next int64
		}
		require.NoError(t, json.Unmarshal([]byte(text), &page))
		require.NotContains(t, text, "payload")
		for _, r := range page.Rows {
			require.Equal(t, "MESSAGE_TOO_LARGE", r.LastError)
			require.Equal(t, fmt.Sprintf("k-%d", len(seen)), r.Key)
			seen = append(seen, r.ID)
		}
		if after = page.Next; after == 0 {
			break
		}
	}
	require.Equal(t, ids, seen)
	_, text := p.ask("GET", "/parked?topic=none", token, "")
	require.JSONEq(t, `{"rows": []}`, text)

	const who = `{"actor": "ann", "reason": "ticket 4711"}`
	for _, c := range []struct {
		path, body string
		code       int
		want       string
	}{
		{"/parked/5/retry", who, 400, "want a UUID"},
		{"/parked/" + someID + "/retry", who, 404, "is not parked"},
		{"/parked/" + someID + "/discard", who, 404, "is not parked"},
		{"/parked/" + ids[0] + "/retry", "", 400, "the body"},
		{"/parked/" + ids[0] + "/retry", `{"actor": " "}`, 400, "actor: want an actor"},
		{"/parked/" + ids[0] + "/retry", `{"actor": "ann\nbob"}`, 400, "actor: the name has a line break"},
		{"/parked/" + ids[0] + "/retry", `{"actor": "ann", "reason": "` + strings.Repeat("r", 2001) + `"}`, 400, "reason: 2001 bytes: at most 2000"},
		{"/parked/" + ids[0] + "/retry", `{"acter": "ann"}`, 400, "unknown field"},
		{"/parked/" + ids[0] + "/discard", `{"actor": "ann"}`, 400, "reason: want a reason"},
		{"/parked/" + ids[0] + "/discard", `{"actor": "` + strings.Repeat("a", 70_000) + `"}`, 400, "too large"},
	} {
		code, text := p.ask("POST", c.path, token, c.body)
		require.Equal(t, c.code, code, text)
		require.Contains(t, text, c.want)
	}
	require.Equal(t, 5, count(t, conn, "SELECT count(*) FROM troupe.outbox_failures WHERE status = 'parked'"))

	code, text := p.ask("POST", "/parked/"+ids[0]+"/retry", token, who)
	require.Equal(t, http.StatusOK, code, text)
	testkit.Consume(t, testkit.Kafka(t), topic).WaitN(1)
	code, text = p.ask("POST", "/parked/"+ids[1]+"/discard", token, who)
	require.Equal(t, http.StatusOK, code, text)
	testkit.Wait(t, "both are gone", func() (bool, error) {
		return count(t, conn, "SELECT count(*) FROM troupe.outbox_status WHERE status <> 'done'") == 3 &&
			count(t, conn, "SELECT count(*) FROM troupe.outbox_failures") == 3, nil
	})
	payload := "{}"
	require.Equal(t, []audit{{"ann", "retry", "ticket 4711", topic, "MESSAGE_TOO_LARGE", 5, nil}}, audits(t, conn, ids[0]))
	require.Equal(t, []audit{{"ann", "discard", "ticket 4711", topic, "MESSAGE_TOO_LARGE", 5, &payload}}, audits(t, conn, ids[1]))
	code, _ = p.ask("POST", "/parked/"+ids[1]+"/discard", token, who)
	require.Equal(t, http.StatusNotFound, code, "a second time finds nothing")
	require.Equal(t, 0, p.terminate())
	require.Contains(t, p.logs(), `"actor":"ann"`)
}

func TestParkedRowsOnTheCommandLine(t *testing.T) {
	t.Parallel()
	environ, conn, topic := site(t)
	r := run(t, environ, "parked", "list")
	require.Equal(t, 0, r.code, r.stderr)
	require.Equal(t, "no row is parked\n", r.stdout)
	ids := park(t, conn, topic, 3)

	r = run(t, environ, "parked", "list", "--limit", "2")
	require.Equal(t, 0, r.code, r.stderr)
	require.Contains(t, r.stdout, ids[0]+"  position 1  "+topic+`  key "k-0"`)
	require.Contains(t, r.stdout, "5 attempts since")
	require.Contains(t, r.stdout, "there are more: --after 2")
	r = run(t, environ, "parked", "list", "--after", "2", "--output", "json")
	var page struct{ Rows []struct{ ID string } }
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &page))
	require.Len(t, page.Rows, 1)
	require.Equal(t, ids[2], page.Rows[0].ID)

	r = run(t, environ, "parked", "show", ids[1])
	require.Equal(t, 0, r.code, r.stderr)
	require.Regexp(t, `payload +\{\}`, r.stdout)
	r = run(t, environ, "parked", "show", ids[1], "--output", "json")
	require.Contains(t, r.stdout, `"payload": "{}"`)

	r = run(t, environ, "parked", "retry", ids[0], "--actor", "ann")
	require.Equal(t, 0, r.code, r.stderr)
	require.Contains(t, r.stdout, "will be tried again")
	require.Equal(t, 1, count(t, conn, "SELECT count(*) FROM troupe.outbox_failures WHERE status = 'retrying' AND attempts = 1 AND next_try <= now()"))
	for _, action := range []string{"retry", "discard"} {
		r = run(t, environ, "parked", action, ids[0], "--actor", "ann", "--reason", "again")
		require.Equal(t, 1, r.code)
		require.Contains(t, r.stderr, "is not parked", "it is the relay's while it is tried")
	}
	r = run(t, environ, "parked", "discard", ids[1], someID, ids[2], "--actor", "ann", "--reason", "ticket 4711", "--output", "json")
	require.Equal(t, 1, r.code, "one was not parked")
	require.Contains(t, r.stderr, someID+" is not parked")
	var done struct {
		Rows []struct{ ID, Topic, Error string }
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &done))
	require.Equal(t, []string{topic, "", topic}, []string{done.Rows[0].Topic, done.Rows[1].Topic, done.Rows[2].Topic}, "the others were done")
	require.Equal(t, 1, count(t, conn, "SELECT count(*) FROM troupe.outbox"))
	require.Len(t, audits(t, conn, ids[2]), 1)

	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"parked"}, "no command"},
		{[]string{"parked", "fly"}, `unknown command "fly"`},
		{[]string{"parked", "show"}, "no id"},
		{[]string{"parked", "show", "5"}, "want a UUID"},
		{[]string{"parked", "list", "--limit", "0"}, "--limit 0"},
		{[]string{"parked", "discard", ids[0], "--actor", "ann"}, "--reason: want a reason"},
		{[]string{"parked", "retry", ids[0], "--actor", "ann\nbob"}, "--actor: the name has a line break"},
		{[]string{"parked", "retry", ids[0], "--actor", "ann", "--reason", strings.Repeat("r", 2001)}, "--reason: 2001 bytes: at most 2000"},
	} {
		r := run(t, environ, c.args...)
		require.Equal(t, 2, r.code, c.args)
		require.Contains(t, r.stderr, c.want)
	}
	r = run(t, []string{"DATABASE_URL=" + testkit.EmptyDatabase(t)}, "parked", "list")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "outbox-relay migrate")
}

func TestAReplayOverHTTP(t *testing.T) {
	t.Parallel()
	environ, conn, topic := site(t)
	p := start(t, environ, "--admin-token-file", tokenFile(t))
	p.waitReady(http.StatusOK)
	for _, c := range []struct{ body, want string }{
		{"{}", "say from where"},
		{`{"from_position": 2, "to_position": 1}`, "want the lower one first"},
		{`{"from": 1}`, "unknown field"},
		{`{"since": "yesterday"}`, "the body"},
	} {
		code, text := p.ask("POST", "/replay", token, c.body)
		require.Equal(t, http.StatusBadRequest, code, text)
		require.Contains(t, text, c.want)
	}
	code, _ := p.ask("GET", "/replay", token, "")
	require.Equal(t, http.StatusNotFound, code)
	code, text := p.ask("POST", "/replay", token, `{"from_position": 1}`)
	require.Equal(t, http.StatusConflict, code)
	require.Contains(t, text, "under poll a row is deleted once it is published")

	code, _ = p.ask("POST", "/pause", token, "") // so that the rows stay, as they do under wal
	require.Equal(t, http.StatusOK, code)
	const rows = 60 // at one a second this takes a minute
	testkit.Wait(t, "rows that stay", func() (bool, error) {
		insert(t, conn, topic, "k")
		return count(t, conn, "SELECT count(*) FROM troupe.outbox") >= rows, nil
	})
	_, err := conn.Exec(t.Context(), `INSERT INTO troupe.relay_state (slot, source, system_id, timeline, published)
		SELECT 'troupe', 'wal', system_identifier::text, 1, pg_current_snapshot() FROM pg_control_system()`)
	require.NoError(t, err)
	lowest := count(t, conn, "SELECT min(position) FROM troupe.outbox")
	last := count(t, conn, "SELECT max(position) FROM troupe.outbox")
	consumer := testkit.Consume(t, testkit.Kafka(t), topic)

	code, text = p.ask("POST", "/replay", token, `{"from_position": 1, "rows_per_second": 1}`)
	require.Equal(t, http.StatusAccepted, code, text)
	code, text = p.ask("POST", "/replay", token, `{"from_position": 1}`)
	require.Equal(t, http.StatusConflict, code)
	require.Contains(t, text, "a replay of this outbox runs")
	var progress struct {
		Running                   bool
		Position, Published, Last int
		LastPosition              int `json:"last_position"`
		Error                     string
	}
	testkit.Wait(t, "the first row", func() (bool, error) {
		_, text := p.ask("GET", "/replay", token, "")
		err := json.Unmarshal([]byte(text), &progress)
		return progress.Published >= 1, err
	})
	code, text = p.ask("DELETE", "/replay", token, "")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, text, `"running": false`)
	require.Contains(t, text, "goes on there")
	before := len(consumer.WaitN(1))

	code, text = p.ask("POST", "/replay", token, fmt.Sprintf(`{"from_position": %d, "rows_per_second": 1000}`, lowest))
	require.Equal(t, http.StatusAccepted, code, text)
	testkit.Wait(t, "the end", func() (bool, error) {
		_, text := p.ask("GET", "/replay", token, "")
		progress.Error = ""
		err := json.Unmarshal([]byte(text), &progress)
		return !progress.Running && progress.Published >= rows, err
	})
	require.Empty(t, progress.Error)
	require.Equal(t, last, progress.Position)
	require.GreaterOrEqual(t, len(consumer.WaitN(before+rows)), before+rows)
	require.Equal(t, 0, p.terminate())
}
