//go:build unix

package devstack

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// startWatched starts cmd next to a shell that reads from a pipe whose only writer is this process. The end of the pipe without a
// word means that this process is gone, and the shell signals the child. A parent that dies between starting the child and
// sending its pid to the shell, some microseconds, leaves the child behind.
func startWatched(cmd *exec.Cmd, atParentsEnd syscall.Signal) (release func(), err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	const script = `trap '' HUP INT TERM; read -r pid || exit 0; read -r word || kill -"$0" "$pid"`
	watcher := exec.Command("/bin/sh", "-c", script, fmt.Sprint(int(atParentsEnd)))
	watcher.Stdin = r
	ownGroup(watcher)
	err = watcher.Start()
	_ = r.Close()
	if err != nil {
		_ = w.Close()
		return nil, fmt.Errorf("watcher: %w", err)
	}
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		_ = w.Close()
		_ = watcher.Wait()
		return nil, err
	}
	_, _ = fmt.Fprintln(w, cmd.Process.Pid)
	return func() {
		_, _ = fmt.Fprintln(w, "ended")
		_ = w.Close()
		_ = watcher.Wait()
	}, nil
}

func ownGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}
