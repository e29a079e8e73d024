package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/demo/run"
	"github.com/troupe-go/troupe/testkit"
)

// servers returns the variables of the servers that the tests share: a run needs seconds less than with its own.
func servers(t *testing.T) []string {
	return []string{
		"TROUPE_POSTGRES=" + testkit.Postgres(t).URL(""), "TROUPE_KAFKA=" + strings.Join(testkit.Kafka(t), ","),
		"TROUPE_REGISTRY=" + testkit.Registry(t),
	}
}

func TestADemoOfItsOwn(t *testing.T) {
	cmd := command(t, nil, "demo", "--limit", "20", "--output", "json")
	r := finish(t, cmd).result(t)
	require.Equal(t, 20, r.Orders)
	require.Equal(t, 20, r.Completed)
	require.Zero(t, r.Compensated+r.Parked)
	require.Positive(t, r.OrdersPerSecond)
	require.Positive(t, r.LatencyMS.P50)
	require.GreaterOrEqual(t, r.LatencyMS.P99, r.LatencyMS.P95)
	require.GreaterOrEqual(t, len(r.Checks), 16)
	require.Nil(t, r.Chaos)
	entries, err := os.ReadDir(filepath.Dir(r.Folder))
	require.NoError(t, err)
	require.Len(t, entries, 1, "only the logs are left")
	logs, err := os.ReadDir(r.Folder)
	require.NoError(t, err)
	require.Len(t, logs, 9, "the demo's, and one of each process")
}

func TestADemoWithRefusalsOnServersOfOthers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "orders.csv")
	text := "customer_id,order_id,amount,quantity,placed_at\r\n"
	for n := range 60 {
		text += fmt.Sprintf("c-%d,o-%d,%d.5,%d,1997-01-31\r\n", n%5, n, n%4, n%3+1)
	}
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	env := servers(t)
	before := traces(t)
	r := finish(t, command(t, env, "demo", "--orders", path, "--fail", "payment=10%,inventory=20%,shipping=30%", "--seed", "7", "--output", "json")).result(t)
	require.Equal(t, 60, r.Orders)
	require.Equal(t, 60, r.Completed+r.Compensated)
	require.Greater(t, r.Compensated, 10)
	require.Equal(t, before, traces(t), "everything that was made is removed")
}

func TestADemoWithoutACoordinatorThatIsHurt(t *testing.T) {
	env := servers(t)
	before := traces(t)
	r := finish(t, command(t, env, "demo", "--style", "choreography", "--limit", "40", "--chaos", "--fail", "payment=5%,inventory=5%,shipping=10%",
		"--output", "json")).result(t)
	require.Equal(t, 40, r.Completed+r.Compensated)
	require.EqualValues(t, "choreography", r.Style)
	require.Len(t, r.Checks, 20)
	require.Greater(t, r.MessagesPerOrder, 4.0)
	require.Equal(t, before, traces(t))
}

func TestADemoThatIsHurt(t *testing.T) {
	env := servers(t)
	before := traces(t)
	r := finish(t, command(t, env, "demo", "--limit", "40", "--chaos", "--fail", "payment=5%,inventory=5%,shipping=10%", "--output", "json")).result(t)
	require.Equal(t, 40, r.Completed+r.Compensated)
	require.Positive(t, r.Chaos.RelaysKilled)
	require.Positive(t, r.Chaos.ServicesKilled)
	require.Positive(t, r.Chaos.ConnectionsCut)
	require.Positive(t, r.Chaos.MessagesDoubled)
	require.Equal(t, before, traces(t))
}

func TestKeepKeepsDatabasesAndTopics(t *testing.T) {
	before := traces(t)
	r := finish(t, command(t, servers(t), "demo", "--limit", "1", "--keep", "--output", "json")).result(t)
	require.NotEqual(t, before, traces(t))
	id := strings.TrimPrefix(r.Flow, "order-")
	for _, service := range []string{"order", "payment", "inventory", "shipping"} {
		require.NoError(t, testkit.Postgres(t).DropDatabase(t.Context(), "troupe_demo_"+id+"_"+service))
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(testkit.Kafka(t)...))
	require.NoError(t, err)
	defer client.Close()
	admin := kadm.NewClient(client)
	topics, err := admin.ListTopics(t.Context())
	require.NoError(t, err)
	groups, err := admin.ListGroups(t.Context())
	require.NoError(t, err)
	others := func(name string) bool { return !strings.HasPrefix(name, r.Flow+".") }
	_, err = admin.DeleteTopics(t.Context(), slices.DeleteFunc(topics.Names(), others)...)
	require.NoError(t, err)
	_, err = admin.DeleteGroups(t.Context(), slices.DeleteFunc(groups.Groups(), others)...)
	require.NoError(t, err)
}

func TestACheckThatDoesNotHoldIsStatus1(t *testing.T) {
	d := start(t, command(t, servers(t), "demo", "--limit", "30", "--rate", "5", "--output", "json"))
	d.until(t, "starting 4 services")
	conn := d.database(t, "payment")
	testkit.Wait(t, "the payment service's table, as soon as it is made", func() (bool, error) {
		_, err := conn.Exec(t.Context(), "INSERT INTO accounts (customer_id, balance_cents) VALUES ('c-unknown', 100)")
		return err == nil, err
	})
	r := d.failed(t)
	require.Empty(t, r.Stuck)
	for _, c := range r.Checks {
		require.Equal(t, c.Name != "account balances = ledger", c.OK, "%+v", c)
		if !c.OK {
			require.Contains(t, c.Got, ": customer c-unknown owes 1.00, by the ledger 0.00")
		}
	}
}

func TestARunThatIsStuckSaysWhere(t *testing.T) {
	d := start(t, command(t, servers(t), "demo", "--limit", "5", "--timeout", "20s", "--output", "json"))
	d.until(t, "starting 4 services")
	conn := d.database(t, "shipping")
	testkit.Wait(t, "the shipping service's table, as soon as it is made", func() (bool, error) {
		_, err := conn.Exec(t.Context(), "BEGIN; LOCK TABLE shipments IN SHARE MODE") // blocks writes; the checks can read it
		if err != nil {
			_, _ = conn.Exec(t.Context(), "ROLLBACK")
		}
		return err == nil, err
	})
	r := d.failed(t)
	require.Contains(t, r.Stuck, "orders: 5 × shipping_intent (running)")
	for _, c := range r.Checks {
		switch {
		case strings.HasPrefix(c.Name, "every order posted ended"):
			require.Contains(t, c.Got, "0 orders: cdnow-00001 is still shipping_intent")
		case strings.HasPrefix(c.Name, "every process stopped"):
			require.True(t, c.OK, "%+v", c)
		}
	}
}

func TestCtrlCStopsAndRemovesEverything(t *testing.T) {
	env := servers(t)
	before := traces(t)
	d := start(t, command(t, env, "demo", "--chaos"))
	d.until(t, "posting")
	require.GreaterOrEqual(t, len(d.processes(t)), 8)
	require.NoError(t, d.cmd.Process.Signal(os.Interrupt))
	rest, err := io.ReadAll(d.stderr)
	require.NoError(t, err)
	require.Error(t, d.cmd.Wait())
	require.Equal(t, 1, d.cmd.ProcessState.ExitCode())
	require.Contains(t, string(rest), "interrupted: every process was stopped; databases and topics are removed")
	requireGone(t, d.processes(t))
	require.Equal(t, before, traces(t))
}

func TestAKilledDemoLeavesNoProcessBehind(t *testing.T) {
	d := start(t, command(t, nil, "demo"))
	d.until(t, "posting")
	processes := d.processes(t)
	require.Len(t, processes, 8)
	scratch, err := filepath.Glob(filepath.Join(filepath.Dir(d.folder), "troupe-pg-*", "data", "postmaster.pid"))
	require.NoError(t, err)
	require.Len(t, scratch, 1)
	text, err := os.ReadFile(scratch[0])
	require.NoError(t, err)
	postmaster, _, _ := strings.Cut(string(text), "\n")
	require.NoError(t, d.cmd.Process.Kill())
	require.Error(t, d.cmd.Wait())
	requireGone(t, append(processes, postmaster))
}

// started is a demo in progress.
type started struct {
	cmd    *exec.Cmd
	stdout bytes.Buffer
	stderr *bufio.Reader
	folder string
}

func start(t *testing.T, cmd *exec.Cmd) *started {
	// Not StderrPipe, which Wait closes: the test reads to the end, and so detects a process that still holds the other side.
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	d := &started{cmd: cmd, stderr: bufio.NewReader(r)}
	cmd.Stdout, cmd.Stderr = &d.stdout, w
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	require.NoError(t, w.Close())
	return d
}

// failed reads the result of a run that ended with status 1.
func (d *started) failed(t *testing.T) run.Result {
	t.Helper()
	_, err := io.Copy(io.Discard, d.stderr)
	require.NoError(t, err)
	require.Error(t, d.cmd.Wait())
	require.Equal(t, 1, d.cmd.ProcessState.ExitCode())
	r := readResult(t, d.stdout.String())
	require.False(t, r.OK)
	return r
}

// database connects to the run's database of a service, of which there is only one.
func (d *started) database(t *testing.T, service string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), testkit.Postgres(t).URL(""))
	require.NoError(t, err)
	var name string
	const sql = "SELECT datname FROM pg_database WHERE datname LIKE 'troupe_demo_%_' || $1"
	require.NoError(t, conn.QueryRow(t.Context(), sql, service).Scan(&name))
	require.NoError(t, conn.Close(t.Context()))
	conn, err = pgx.Connect(t.Context(), testkit.Postgres(t).URL(name))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// until reads the demo's output up to the line that begins with word.
func (d *started) until(t *testing.T, word string) {
	t.Helper()
	for {
		line, err := d.stderr.ReadString('\n')
		require.NoError(t, err)
		if folder, ok := strings.CutPrefix(line, "logs: "); ok {
			d.folder = strings.TrimSpace(folder)
		}
		if strings.HasPrefix(line, word) {
			return
		}
	}
}

// processes returns the pids of the processes that the demo has started so far.
func (d *started) processes(t *testing.T) (pids []string) {
	file, err := os.Open(filepath.Join(d.folder, "demo.log"))
	require.NoError(t, err)
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var line struct {
			Pid     int
			Message string
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &line))
		if line.Message == "started" {
			pids = append(pids, fmt.Sprint(line.Pid))
		}
	}
	return pids
}

// requireGone waits until none of the processes runs. A zombie counts as gone.
func requireGone(t *testing.T, pids []string) {
	t.Helper()
	testkit.Wait(t, "processes gone", func() (bool, error) {
		out, _ := exec.Command("ps", "-o", "pid=,stat=,args=", "-p", strings.Join(pids, ",")).Output() // status 1: there is none
		for line := range strings.Lines(string(out)) {
			if fields := strings.Fields(line); !strings.HasPrefix(fields[1], "Z") {
				return false, fmt.Errorf("still there: %s", line)
			}
		}
		return true, nil
	})
}

// traces returns the names that demos have created on the shared servers.
func traces(t *testing.T) (names []string) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, testkit.Postgres(t).URL(""))
	require.NoError(t, err)
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, "SELECT datname FROM pg_database WHERE starts_with(datname, 'troupe_demo_')")
	require.NoError(t, err)
	names, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	client, err := kgo.NewClient(kgo.SeedBrokers(testkit.Kafka(t)...))
	require.NoError(t, err)
	defer client.Close()
	topics, err := kadm.NewClient(client).ListTopics(ctx)
	require.NoError(t, err)
	groups, err := kadm.NewClient(client).ListGroups(ctx)
	require.NoError(t, err)
	for _, name := range append(topics.Names(), groups.Groups()...) {
		if strings.HasPrefix(name, "order-") {
			names = append(names, name)
		}
	}
	return names
}
