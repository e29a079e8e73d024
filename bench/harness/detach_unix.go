//go:build unix

package harness

import (
	"os/exec"
	"syscall"
)

// detach gives cmd a process group of its own, so that Ctrl-C does not signal it.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
