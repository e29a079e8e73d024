//go:build unix

package sidecar_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/sagahttp"
	"github.com/troupe-go/troupe/internal/short"
	"github.com/troupe-go/troupe/internal/sidecar"
	"github.com/troupe-go/troupe/testkit"
)

// programEnv makes this binary run outbox-relay itself, for tests that need a process.
const programEnv = "TROUPE_SIDECAR_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) == "" {
		short.Only(
			"TestTheReferenceIsWhatTheProgramKnows", "TestTheSchemaAndTheProgramAgree", "TestCheckSaysWhatWouldGoWrong",
			"TestRunPublishesAndEndsWithZero",
		)
		testkit.Main(m)
	}
	go func() { // ends with its parent
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(99)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	p := sidecar.Program{Args: os.Args[1:], Stdout: os.Stdout, Stderr: os.Stderr, Parts: sagahttp.NewServer}
	if os.Args[1] == ambassadorProgram {
		p.Args = os.Args[2:]
		if os.Getenv(quickSessionEnv) != "" {
			p.Kafka = quickSession()
		}
		os.Exit(p.Ambassador(ctx))
	}
	os.Exit(p.Main(ctx))
}

// result holds the exit status and the output of one run of the program.
type result struct {
	code           int
	stdout, stderr string
}

// run runs the program with nothing in its environment but environ.
func run(t *testing.T, environ []string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	args = append([]string{}, args...) // a nil slice would make the command line this test's own
	p := sidecar.Program{Args: args, Stdout: &stdout, Stderr: &stderr, Environ: append([]string{}, environ...)}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	return result{p.Main(ctx), stdout.String(), stderr.String()}
}

// A process is a running outbox-relay run, with its log.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	admin string
	ended chan struct{}

	mu   sync.Mutex
	text strings.Builder
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *process) logs() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// anyPort makes a process choose a port: a port that was free a moment ago may be in use by now. The process logs its choice.
const anyPort = "127.0.0.1:0"

// start runs the program, and returns when the admin endpoints answer.
func start(t *testing.T, environ []string, args ...string) *process {
	t.Helper()
	return launch(t, environ, append([]string{"run", "--admin", anyPort}, args...)...)
}

// launch is start with a configuration that sets the admin address to anyPort.
func launch(t *testing.T, environ []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, ended: make(chan struct{})}
	executable, err := os.Executable()
	require.NoError(t, err)
	p.cmd = exec.Command(executable, args...)
	// The source is poll, under which a published row is deleted at once; a test of wal sets the variable. No test here makes a
	// relay take over from a killed one: the lease is longer than any stall of the machine.
	p.cmd.Env = append([]string{
		programEnv + "=1", "PATH=" + os.Getenv("PATH"), "OUTBOX_RELAY_SOURCE=poll", "OUTBOX_RELAY_LEASE=1m",
	}, environ...)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	stdin, err := p.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = stdin.Close()
		<-p.ended
		if t.Failed() {
			t.Log(p.logs())
		}
	})
	p.admin = p.address("admin")
	testkit.Wait(t, "/livez", func() (bool, error) {
		code, _, err := p.get("/livez")
		return code == http.StatusOK, err
	})
	return p
}

// address returns an address that the process listens on, from its log.
func (p *process) address(name string) (address string) {
	p.t.Helper()
	said := regexp.MustCompile(`"` + name + `":"(127\.0\.0\.1:\d+)"`)
	testkit.Wait(p.t, "the "+name+" address", func() (bool, error) {
		select {
		case <-p.ended:
			p.t.Fatalf("the process has ended: %s", p.logs())
		default:
		}
		found := said.FindStringSubmatch(p.logs())
		if found == nil {
			return false, errors.New("it is not in the log yet")
		}
		address = found[1]
		return true, nil
	})
	return address
}

func (p *process) get(path string) (code int, body string, err error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
	resp, err := client.Get("http://" + p.admin + path)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// waitReady waits until /readyz answers with the code, and returns its body.
func (p *process) waitReady(code int) (h struct {
	OK     bool
	Role   string
	Reason string
}) {
	p.t.Helper()
	testkit.Wait(p.t, "/readyz", func() (bool, error) {
		got, body, err := p.get("/readyz")
		if err != nil || got != code {
			return false, errors.Join(err, errors.New(body))
		}
		return true, json.Unmarshal([]byte(body), &h)
	})
	return h
}

// terminate sends SIGTERM to the process and returns its exit status.
func (p *process) terminate() int {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-p.ended:
	case <-time.After(3 * time.Minute):
		p.t.Fatal("did not end within three minutes")
	}
	return p.cmd.ProcessState.ExitCode()
}
