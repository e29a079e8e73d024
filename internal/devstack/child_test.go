//go:build unix

package devstack_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	osexec "os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/testkit"
)

// role makes this test binary, started again, a parent to be killed or its child.
const role = "DEVSTACK_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "":
		testkit.Main(m)
	case "child":
		<-signals()
	case "parent":
		beParent(devstack.StartChild)
	case "watched parent":
		beParent(devstack.StartWatchedChild)
	case "postgres parent":
		p, err := devstack.StartPostgres(context.Background(), devstack.PostgresConfig{})
		if err != nil {
			panic(err)
		}
		fmt.Println(p.SocketURL(""))
		<-signals()
	}
}

// signals returns a channel that never receives, and keeps the runtime from reporting a blocked process as a deadlock.
func signals() chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1)
	return c
}

func beParent(start func(*osexec.Cmd) (*devstack.Child, error)) {
	cmd := again("child")
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "pipe")}
	child, err := start(cmd)
	if err != nil {
		panic(err)
	}
	fmt.Println(child.Pid())
	<-signals()
}

func again(as string) *osexec.Cmd {
	cmd := osexec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), role+"="+as)
	return cmd
}

func TestChildEndsWithItsKilledParent(t *testing.T) {
	t.Parallel()
	for _, parent := range []string{"parent", "watched parent"} {
		t.Run(parent, func(t *testing.T) {
			t.Parallel()
			r, w, err := os.Pipe()
			require.NoError(t, err)
			defer r.Close()
			cmd := again(parent)
			cmd.ExtraFiles = []*os.File{w}
			startAndHear(t, cmd)
			require.NoError(t, w.Close())

			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait()
			// Parent and child hold the other end: EOF means that both have ended.
			require.NoError(t, r.SetReadDeadline(time.Now().Add(time.Minute)))
			_, err = r.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
		})
	}
}

func TestPostgresEndsWithItsKilledParent(t *testing.T) {
	t.Parallel()
	cmd := again("postgres parent")
	address := startAndHear(t, cmd)
	require.Equal(t, "postgres", ask(t, address, "SELECT current_user::text"))

	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	testkit.Wait(t, "server gone", func() (bool, error) {
		conn, err := pgx.Connect(t.Context(), address)
		if err != nil {
			return true, nil
		}
		return false, conn.Close(t.Context())
	})
	u, err := url.Parse(address)
	require.NoError(t, err)
	left := filepath.Dir(u.Query().Get("host"))
	testkit.Wait(t, "a later start removes "+left, func() (bool, error) {
		require.NoError(t, startPostgres(t, devstack.PostgresConfig{}).Close())
		_, err := os.Stat(left)
		return os.IsNotExist(err), nil
	})
}

// startAndHear starts cmd and returns its first line.
func startAndHear(t *testing.T, cmd *osexec.Cmd) string {
	t.Helper()
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}

func TestChildTellsHowItEnded(t *testing.T) {
	t.Parallel()
	for _, start := range []func(*osexec.Cmd) (*devstack.Child, error){devstack.StartChild, devstack.StartWatchedChild} {
		child, err := start(osexec.Command("/bin/sh", "-c", "exit 3"))
		require.NoError(t, err)
		<-child.Done()
		var exit *osexec.ExitError
		require.ErrorAs(t, child.Wait(), &exit)
		require.Equal(t, 3, exit.ExitCode())
		require.ErrorIs(t, child.Signal(syscall.SIGTERM), os.ErrProcessDone)
		child.Kill()

		child, err = start(again("child"))
		require.NoError(t, err)
		child.Kill()
		require.ErrorAs(t, child.Wait(), &exit)
		require.Equal(t, -1, exit.ExitCode())

		_, err = start(osexec.Command("/nonexistent"))
		require.ErrorIs(t, err, os.ErrNotExist)
	}
}
