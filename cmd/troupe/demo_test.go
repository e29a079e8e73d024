package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/testkit"
)

// servers are those that the tests share, as the demo's environment names them: a run needs seconds less than with its own.
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

func TestWhatIsToBeKeptIsKept(t *testing.T) {
	before := traces(t)
	r := finish(t, command(t, servers(t), "demo", "--limit", "1", "--keep", "--output", "json")).result(t)
	require.NotEqual(t, before, traces(t))
	id := strings.TrimPrefix(r.Flow, "order-")
	for _, service := range []string{"order", "payment", "inventory", "shipping"} {
		require.NoError(t, testkit.Postgres(t).DropDatabase(t.Context(), "troupe_demo_"+id+"_"+service))
	}
}

func TestCtrlCStopsAndRemovesEverything(t *testing.T) {
	env := servers(t)
	before := traces(t)
	d := start(t, command(t, env, "demo", "--chaos"))
	d.until(t, "posting")
	processes := d.processes(t)
	require.Len(t, processes, 8)
	require.NoError(t, d.cmd.Process.Signal(os.Interrupt))
	rest, err := io.ReadAll(d.stderr)
	require.NoError(t, err)
	require.Error(t, d.cmd.Wait())
	require.Equal(t, 1, d.cmd.ProcessState.ExitCode())
	require.Contains(t, string(rest), "interrupted: everything was stopped and removed")
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

// started is a demo under way.
type started struct {
	cmd    *exec.Cmd
	stderr *bufio.Reader
	folder string
}

func start(t *testing.T, cmd *exec.Cmd) *started {
	// Not StderrPipe, which Wait closes: the test reads to the end, and so finds whoever still holds the other side.
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	cmd.Stderr = w
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	require.NoError(t, w.Close())
	return &started{cmd: cmd, stderr: bufio.NewReader(r)}
}

// until reads what the demo says up to the line that begins with word.
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

// processes are the pids of those that the demo has started so far.
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

// requireGone waits until none of the processes runs. One that has ended and that nobody has asked for its status counts
// as gone.
func requireGone(t *testing.T, pids []string) {
	t.Helper()
	testkit.Wait(t, "processes gone", func() (bool, error) {
		out, _ := exec.Command("ps", "-o", "pid=,stat=,args=", "-p", strings.Join(pids, ",")).Output() // status 1: none is there
		for line := range strings.Lines(string(out)) {
			if fields := strings.Fields(line); !strings.HasPrefix(fields[1], "Z") {
				return false, fmt.Errorf("still there: %s", line)
			}
		}
		return true, nil
	})
}

// traces are what demos have made on the shared servers.
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
