//go:build unix

package credentials

import (
	"os/exec"
	"syscall"
)

// endWithChildren makes the command the leader of a process group, and lets the whole group be killed: otherwise the children
// of a shell would not end.
func endWithChildren(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
