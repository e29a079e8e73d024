//go:build unix

package sidecar_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/sidecar"
	"github.com/troupe-go/troupe/testkit"
)

// programEnv makes this binary outbox-relay itself, for what only a process can show.
const programEnv = "TROUPE_SIDECAR_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) == "" {
		testkit.Main(m)
	}
	go func() { // ends with its parent
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(99)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	p := sidecar.Program{Args: os.Args[1:], Stdout: os.Stdout, Stderr: os.Stderr}
	if os.Args[1] == ambassadorProgram {
		p.Args, p.Kafka = os.Args[2:], quickSession()
		os.Exit(p.Ambassador(ctx))
	}
	os.Exit(p.Main(ctx))
}

// result is what one run of the program left.
type result struct {
	code           int
	stdout, stderr string
}

// run calls the program with nothing in its environment but environ.
func run(t *testing.T, environ []string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	p := sidecar.Program{Args: args, Stdout: &stdout, Stderr: &stderr, Environ: append([]string{}, environ...)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return result{p.Main(ctx), stdout.String(), stderr.String()}
}

// A process is outbox-relay run, with what it logged.
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

// start runs the program on a free port, and returns when the admin endpoints answer.
func start(t *testing.T, environ []string, args ...string) *process {
	t.Helper()
	address := freeAddress(t)
	return launch(t, environ, address, append([]string{"run", "--admin", address}, args...)...)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}

// launch is start where the arguments say nothing of the admin address.
func launch(t *testing.T, environ []string, address string, args ...string) *process {
	t.Helper()
	p := &process{t: t, admin: address, ended: make(chan struct{})}
	executable, err := os.Executable()
	require.NoError(t, err)
	p.cmd = exec.Command(executable, args...)
	// From the table, where a row that is published is gone at once; who wants the log says so.
	p.cmd.Env = append([]string{programEnv + "=1", "PATH=" + os.Getenv("PATH"), "OUTBOX_RELAY_SOURCE=poll"}, environ...)
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
	testkit.Wait(t, "/livez", func() (bool, error) {
		code, _, err := p.get("/livez")
		return code == http.StatusOK, err
	})
	return p
}

func (p *process) get(path string) (code int, body string, err error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	resp, err := client.Get("http://" + p.admin + path)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// waitReady waits until /readyz answers the code, and returns its body.
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

// terminate asks the process to end and returns its exit status.
func (p *process) terminate() int {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-p.ended:
	case <-time.After(15 * time.Second):
		p.t.Fatal("did not end within 15 s")
	}
	return p.cmd.ProcessState.ExitCode()
}
