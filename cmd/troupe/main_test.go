package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/demo/run"
	"github.com/troupe-go/troupe/internal/short"
	"github.com/troupe-go/troupe/testkit"
)

// asTroupe in the environment makes this test binary run the command itself, and so does every process that the command starts.
const asTroupe = "TEST_AS_TROUPE"

func TestMain(m *testing.M) {
	if os.Getenv(asTroupe) != "" {
		main() // exits
	}
	short.Only(
		"TestInitMakesAService", "TestWrongUsageIsStatus2", "TestEveryCommandHasHelpWithAnExample", "TestTheReferenceIsThatOfTheCommands",
		"TestPagesAndCommandsTakeTheSame", "TestFlowVerifySaysNothingOfAGoodFlow",
	)
	testkit.Main(m)
}

// command runs in a folder for temporary files of the test's own, and never gets settings of the machine.
func command(t *testing.T, env []string, args ...string) *exec.Cmd {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, args...)
	dir, err := os.MkdirTemp("/tmp", "t-") // short, for Postgres' sockets
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o711))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "TROUPE_") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(cmd.Env, asTroupe+"=1", "TMPDIR="+dir, "DATABASE_URL=postgres://production.invalid/", "KAFKA_BROKERS=production.invalid:1")
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// outcome is the result of a command.
type outcome struct {
	status         int
	stdout, stderr string
}

func finish(t *testing.T, cmd *exec.Cmd) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// result returns the result of a run whose checks pass.
func (o outcome) result(t *testing.T) run.Result {
	t.Helper()
	r := readResult(t, o.stdout)
	for _, c := range r.Checks {
		require.True(t, c.OK, "%+v\n%s", c, o.stderr)
	}
	require.True(t, r.OK)
	require.Equal(t, 0, o.status)
	return r
}

// readResult reads the last line of standard output, which must be the only one.
func readResult(t *testing.T, stdout string) (r run.Result) {
	t.Helper()
	require.Equal(t, 1, strings.Count(stdout, "\n"), stdout)
	require.NoError(t, json.Unmarshal([]byte(stdout), &r))
	return r
}

func TestWrongUsageIsStatus2(t *testing.T) {
	for _, args := range []string{
		"", "dance", "demo now", "demo --dance", "demo --limit many", "demo --limit -1", "demo --fail payment", "demo --fail dancing=2%", "demo --style anarchy",
		"demo --output xml", "demo --timeout 0s", "demo --seed x", "demo --rate -1", "demo --rate NaN", "version --output xml", "version now", "demo-child", "demo-child service unknown",
		"schema", "schema dance", "schema check", "schema check x.avsc", "schema check --against x --registry http://localhost x.avsc", "schema check --against x --level sideways x.avsc",
		"schema check --against x --output xml x.avsc", "schema register x.avsc", "schema register --against x x.avsc", "schema diff x.avsc", "schema diff --level FULL x.avsc",
		"saga", "saga dance", "saga verify", "saga verify --output xml x.json", "saga verify gone.json", "saga verify --hops gone.json x.json",
	} {
		o := finish(t, command(t, nil, strings.Fields(args)...))
		require.Equal(t, 2, o.status, "%q: %+v", args, o)
		require.NotEmpty(t, o.stderr, args)
		require.Empty(t, o.stdout, args)
	}
}

func TestBadOrdersAreSaidBeforeAnythingIsStarted(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	bad := write("bad.csv", "order_id,customer_id,placed_at,quantity,amount\no-1,c-1,1997-01-31,2,29.333\n")
	for path, want := range map[string]string{
		bad:                            bad + ":2: amount: amount \"29.333\" has more than two decimals",
		write("empty.csv", ""):         "empty.csv: empty",
		filepath.Join(dir, "gone.csv"): "gone.csv: no such file",
		dir:                            "a folder",
	} {
		o := finish(t, command(t, nil, "demo", "--orders", path))
		require.Equal(t, 1, o.status, path)
		require.Contains(t, o.stderr, want)
		require.NotContains(t, o.stderr, "goroutine")
		require.NotContains(t, o.stderr, "starting")
	}
}

func TestServersThatCannotBeReachedAreNamed(t *testing.T) {
	o := finish(t, command(t, []string{"TROUPE_POSTGRES=postgres://nobody@127.0.0.1:1/postgres"}, "demo", "--limit", "1"))
	require.Equal(t, 1, o.status)
	require.Contains(t, o.stderr, "TROUPE_POSTGRES")
	o = finish(t, command(t, []string{"TROUPE_POSTGRES=" + testkit.Postgres(t).URL("")}, "demo", "--limit", "1", "--brokers", testkit.Kafka(t)[0],
		"--registry", "http://127.0.0.1:1"))
	require.Equal(t, 1, o.status)
	require.Contains(t, o.stderr, "TROUPE_REGISTRY")
}

func TestEveryCommandHasHelpWithAnExample(t *testing.T) {
	var all func(c *cobra.Command, path ...string) [][]string
	all = func(c *cobra.Command, path ...string) [][]string {
		paths := [][]string{append(slices.Clone(path), "--help")}
		for _, sub := range c.Commands() {
			if !sub.Hidden {
				paths = append(paths, all(sub, append(slices.Clone(path), sub.Name())...)...)
			}
		}
		return paths
	}
	for _, args := range all(newRoot()) {
		o := finish(t, command(t, nil, args...))
		require.Equal(t, 0, o.status)
		require.Contains(t, o.stdout, "Examples:")
		require.NotContains(t, o.stdout, run.ChildCommand)
	}
}

func TestVersion(t *testing.T) {
	o := finish(t, command(t, nil, "version"))
	require.Equal(t, 0, o.status)
	require.True(t, strings.HasPrefix(o.stdout, "troupe "), o.stdout)
	o = finish(t, command(t, nil, "version", "--output", "json"))
	var v map[string]string
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &v))
	require.Contains(t, v["go"], "go1.")
}
