package run

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// newProcess returns a process that runs script, and appends its output to a log. The test accepts connections at its address.
func newProcess(t *testing.T, script string) (p *process, lines func() []string) {
	p = &process{
		name: "payment", kind: service, log: zerolog.Nop(), logPath: filepath.Join(t.TempDir(), "payment.log"), address: listen(t, "127.0.0.1:0"),
		command: func([]string) *exec.Cmd { return exec.Command("/bin/sh", "-c", script) },
	}
	return p, func() []string {
		text, err := os.ReadFile(p.logPath)
		if err != nil {
			return nil
		}
		return strings.Fields(string(text))
	}
}

func listen(t *testing.T, address string) string {
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// keep runs p until the test's end or stop.
func keep(t *testing.T, p *process) (stop func() error) {
	stopping, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- p.keep(context.WithoutCancel(t.Context()), stopping) }()
	return func() error {
		close(stopping)
		return <-ended
	}
}

func waitLines(t *testing.T, lines func() []string, n int) {
	t.Helper()
	testkit.Wait(t, "lines in the log", func() (bool, error) { return len(lines()) >= n, nil })
}

const (
	obedient = `trap 'kill $!; exit 0' TERM; echo up; while :; do sleep 60 & wait; done`
	sulking  = `trap 'kill $!; exit 3' TERM; echo up; while :; do sleep 60 & wait; done`
)

func TestAKilledProcessHasASuccessorAndNoFault(t *testing.T) {
	p, lines := newProcess(t, obedient)
	stop := keep(t, p)
	for n := range 2 {
		waitLines(t, lines, n+1)
		testkit.Wait(t, "a kill", func() (bool, error) { return p.kill(), nil }) // it may print before we know its pid
	}
	waitLines(t, lines, 3)
	require.NoError(t, stop())
	require.Empty(t, p.faults)
	require.Empty(t, p.end)
	require.False(t, p.kill(), "there is no child")
}

func TestAReplacedProcessEndsBySIGTERMAndItsSuccessorRunsTheOtherProgram(t *testing.T) {
	p, lines := newProcess(t, "")
	p.program = []string{"old"}
	p.command = func(program []string) *exec.Cmd {
		return exec.Command("/bin/sh", "-c", "echo "+program[0]+"; "+obedient)
	}
	stop := keep(t, p)
	waitLines(t, lines, 2)
	require.NoError(t, p.replace(t.Context(), []string{"new"}))
	require.NoError(t, p.replace(t.Context(), []string{"new"}), "nothing to do")
	waitLines(t, lines, 4)
	require.NoError(t, stop())
	require.Equal(t, []string{"old", "up", "new", "up"}, lines())
	require.Empty(t, p.faults)
	require.Empty(t, p.end)
}

func TestAProcessIsReplacedOnceItAcceptsConnections(t *testing.T) {
	p, lines := newProcess(t, "echo up; while :; do sleep 60 & wait; done") // a program that does not handle SIGTERM yet
	addresses, err := freeAddresses(1)
	require.NoError(t, err)
	p.address = addresses[0]
	stop := keep(t, p)
	waitLines(t, lines, 1)
	ended := make(chan error, 1)
	go func() { ended <- p.replace(t.Context(), []string{"new"}) }()
	select {
	case <-ended:
		t.Fatal("it was replaced before it accepts connections")
	case <-time.After(3 * restartWait): // its successor would have been started
	}
	listen(t, p.address)
	require.NoError(t, <-ended)
	_ = stop()
	require.Equal(t, []string{"signal: terminated"}, p.faults)
}

func TestAReplacedProcessThatDoesNotEndWellHasAFault(t *testing.T) {
	p, lines := newProcess(t, sulking)
	stop := keep(t, p)
	waitLines(t, lines, 1)
	require.NoError(t, p.replace(t.Context(), []string{"new"}))
	waitLines(t, lines, 2)
	require.NoError(t, stop())
	require.Equal(t, []string{"exit status 3"}, p.faults)
}

func TestAProcessThatEndsByItselfHasAFaultAndASuccessor(t *testing.T) {
	p, lines := newProcess(t, `echo up; test -e "$0" || { touch "$0"; exit 7; }; `+obedient)
	flag := filepath.Join(t.TempDir(), "flag")
	p.command = func([]string) *exec.Cmd {
		return exec.Command("/bin/sh", "-c", `test -e "$0" || { touch "$0"; echo down; exit 7; }; `+obedient, flag)
	}
	stop := keep(t, p)
	waitLines(t, lines, 2)
	require.NoError(t, stop())
	require.Equal(t, []string{"exit status 7"}, p.faults)
	require.Empty(t, p.end)
}

func TestAProcessThatNeverStaysIsGivenUp(t *testing.T) {
	p, _ := newProcess(t, `echo no database; exit 0`)
	err := p.keep(t.Context(), nil)
	require.ErrorContains(t, err, "payment ended by itself 10 times, the last time with exit status 0: no database")
}

func TestAProcessThatDoesNotEndWellIsRemembered(t *testing.T) {
	p, lines := newProcess(t, sulking)
	stop := keep(t, p)
	waitLines(t, lines, 1)
	require.NoError(t, stop())
	require.Empty(t, p.faults)
	require.Equal(t, "exit status 3", p.end)

	f := &fleet{processes: []*process{p}}
	require.Equal(t, []string{"payment: exit status 3"}, f.unclean())
	require.Empty(t, f.faults())
}

func TestAProcessThatCannotBeStartedIsAnError(t *testing.T) {
	p, _ := newProcess(t, "")
	p.command = func([]string) *exec.Cmd { return exec.Command("/nonexistent/program") }
	require.ErrorContains(t, p.keep(t.Context(), nil), "start payment")
}

func TestFreeAddressesDiffer(t *testing.T) {
	all, err := freeAddresses(200)
	require.NoError(t, err)
	seen := make(map[string]bool)
	for _, a := range all {
		seen[a] = true
	}
	require.Len(t, seen, 200)
}

func TestChildrenGetNothingThatWasSetForOthers(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://production/")
	t.Setenv("KAFKA_BROKERS", "production:9092")
	t.Setenv("OUTBOX_RELAY_CONFIG", "/etc/relay.yaml")
	t.Setenv("DEMO_PARTITIONS", "900")
	t.Setenv("TROUPE_POSTGRES", "postgres://password@else/")
	t.Setenv("UNRELATED", "kept")
	env := settings{brokers: "b:1", registry: "http://r", flow: "order-1", seed: 7}.environment("payment", "payment-relay", "postgres://mine/", "127.0.0.1:1")
	text := strings.Join(env, "\n")
	for _, gone := range []string{"production", "/etc/relay.yaml", "DEMO_PARTITIONS", "TROUPE_POSTGRES"} {
		require.NotContains(t, text, gone)
	}
	for _, there := range []string{
		"DATABASE_URL=postgres://mine/", "KAFKA_BROKERS=b:1", "SCHEMA_REGISTRY_URL=http://r", "DEMO_FLOW=order-1", "DEMO_SEED=7",
		"DEMO_LISTEN=127.0.0.1:1", "OUTBOX_RELAY_ADMIN=127.0.0.1:1", "OUTBOX_RELAY_SERVICE=payment", "TROUPE_DEMO_CHILD=payment-relay",
		"TROUPE_DEMO_PROXY=", "UNRELATED=kept",
	} {
		require.Contains(t, env, there)
	}
}

func TestAChildThatIsAskedForNonsenseIsMisused(t *testing.T) {
	for _, args := range [][]string{nil, {"service"}, {"service", "nobody"}, {"relay", "order"}, {"broker"}} {
		var said strings.Builder
		require.Equal(t, 2, Child(t.Context(), args, &said), args)
		require.Contains(t, said.String(), "want service order|payment|inventory|shipping, or relay")
	}
	t.Setenv(envProxy, "nonsense")
	var said strings.Builder
	require.Equal(t, 2, Child(t.Context(), []string{"relay"}, &said))
	require.Contains(t, said.String(), "TROUPE_DEMO_PROXY")
}
