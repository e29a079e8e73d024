package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/troupe-go/troupe/internal/devstack"
)

// taskEnv holds the task of a child process.
const taskEnv = "TROUPE_BENCH_TASK"

// Child runs the task of a process that StartTask started, and exits. In other processes it does nothing.
func Child[T any](name string, run func(context.Context, T) error) {
	text := os.Getenv(taskEnv)
	if text == "" {
		return
	}
	var task T
	err := json.Unmarshal([]byte(text), &task)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx, task)
		stop()
	}
	exit(name, err)
}

// StartTask starts this program again, as a child process with a task, which ends with this process.
func StartTask(ctx context.Context, task any, stdout, stderr io.Writer) (*devstack.Child, error) {
	text, err := json.Marshal(task)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), taskEnv+"="+string(text))
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return devstack.StartChild(cmd)
}

// Output runs a program and returns its output. An error has the program's error output.
func Output(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s%s", cmd, err, strings.TrimSpace(stderr.String()), stdout)
	}
	return strings.TrimSpace(string(stdout)), nil
}
