//go:build browser

package browser

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// A demo runs troupe demo --console in a process of its own.
type demo struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
	said  strings.Builder
	root  string
	token string
}

func startDemo(t *testing.T, args ...string) *demo {
	program := filepath.Join(t.TempDir(), "troupe")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../../cmd/troupe").CombinedOutput()
	require.NoError(t, err, "%s", out)
	d := &demo{t: t, cmd: exec.Command(program, append([]string{"demo", "--console=127.0.0.1:0"}, args...)...)}
	d.cmd.Env = append(os.Environ(), "TROUPE_POSTGRES="+testkit.Postgres(t).URL(""))
	stderr, err := d.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, d.cmd.Start())
	t.Cleanup(func() {
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		for d.lines.Scan() {
			d.said.WriteString(d.lines.Text() + "\n")
		}
		_ = d.cmd.Wait() // the test's actions on the pages may make a check fail
		if t.Failed() {
			t.Log(d.said.String())
		}
	})
	d.lines = bufio.NewScanner(stderr)
	d.token = d.until("sign in with the token ")
	d.root = strings.TrimSuffix(d.until("console: "), "/")
	return d
}

// until reads the output up to a line with that text, and returns the rest of the line.
func (d *demo) until(text string) string {
	d.t.Helper()
	for d.lines.Scan() {
		d.said.WriteString(d.lines.Text() + "\n")
		if _, rest, is := strings.Cut(d.lines.Text(), text); is {
			return rest
		}
	}
	require.Fail(d.t, "it never says "+text, d.said.String())
	return ""
}

// facts reads a page's facts.
func (d *demo) facts(page string, into any) {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, d.root+page, nil)
	require.NoError(d.t, err)
	r.Header.Set("Accept", "application/json")
	a, err := http.DefaultClient.Do(r)
	require.NoError(d.t, err)
	defer a.Body.Close()
	require.Equal(d.t, http.StatusOK, a.StatusCode, page)
	require.NoError(d.t, json.NewDecoder(a.Body).Decode(into))
}

// letter writes a dead letter into payment's database, as a message would leave it that another service sent there by
// mistake.
func (d *demo) letter(hop string) (id string) {
	d.t.Helper()
	run := strings.TrimSuffix(strings.TrimPrefix(hop, "order-"), ".order")
	conn, err := pgx.Connect(d.t.Context(), testkit.Postgres(d.t).URL("troupe_demo_"+run+"_payment"))
	require.NoError(d.t, err)
	defer func() { require.NoError(d.t, conn.Close(d.t.Context())) }()
	require.NoError(d.t, conn.QueryRow(d.t.Context(), `
		INSERT INTO troupe.dead_letters (consumer_group, handler, error_class, error, attempts, topic, topic_id, partition, "offset", key,
		                                 headers, payload, message_id, message_type, correlation_id, first_failed_at, last_failed_at)
		VALUES ('audit', 'audit/Oddity', 'poison', 'no handler for Oddity', 1, 'audit.commands', '0191f6a8-0000-4000-8000-000000000001', 0, 1,
		        'o-odd', '', 'odd', 'odd-1', 'Oddity', 'odd-1', now(), now())
		RETURNING id`).Scan(&id))
	return id
}

// A demo runs while processes are killed and connections are cut; then every page shows the result, and a message without a
// handler is repaired.
func TestAPersonLooksAtADemoThatWasHurt(t *testing.T) {
	d := startDemo(t, "--chaos", "--limit", "40", "--fail", "payment=5%,inventory=5%,shipping=10%")
	d.until("all orders have ended")
	p := newBrowser(t, d.root)

	var databases struct{ Databases []struct{ Database string } }
	d.facts("/relay", &databases)
	require.Len(t, databases.Databases, 4)
	var definitions struct {
		Databases []struct {
			Database    string
			Definitions []struct{ Definition string }
		}
	}
	d.facts("/definitions", &definitions)
	var sagas struct {
		Database string
		Sagas    []struct{ ID, Key, Hop string }
	}
	d.facts("/sagas", &sagas)
	require.Len(t, sagas.Sagas, 40)
	id, key := sagas.Sagas[0].ID, sagas.Sagas[0].Key
	pages := map[string]string{
		"Overview": p.address("/"), "Sagas": p.address("/sagas"), id: p.address("/saga", "db", sagas.Database, "id", id), "Flows": p.address("/flows"),
		"Dead letters": p.address("/dead-letters"), "Held keys": p.address("/held"), "Messages": p.address("/messages", "q", key),
		"Relay": p.address("/relay"), "Definitions": p.address("/definitions"), "As a test": p.address("/saga/fixture", "db", sagas.Database, "id", id),
	}
	for _, of := range definitions.Databases {
		for _, one := range of.Definitions {
			pages["The verifier’s report"] = p.address("/definition", "db", of.Database, "hash", one.Definition)
		}
	}
	for text, address := range pages {
		p.visit(address)
		p.sees(text)
	}
	p.quiet()

	require.NotEmpty(t, d.token)
	p.visit(p.address("/sign-in"))
	p.fill("name", "ann")
	p.fill("token", d.token)
	p.press("button", "Sign in")
	p.sees("Sign out")
	letter := d.letter(sagas.Sagas[0].Hop)
	p.visit(p.address("/dead-letter", "db", "payment", "id", letter))
	p.press("summary", "Discard it")
	p.fill("why-discard", "ticket 6")
	p.press("button", "Discard")
	p.sees("discard by ann")
	p.quiet()
}
