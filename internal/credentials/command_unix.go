//go:build unix

package credentials

import (
	"os/exec"
	"syscall"
)

// endWithChildren makes the command the leader of a process group, which is killed as a whole: a shell's children would live on.
func endWithChildren(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
