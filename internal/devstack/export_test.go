//go:build unix

package devstack

import (
	"os/exec"
	"syscall"
)

// StartWatchedChild is StartChild with the mechanism of systems other than Linux.
func StartWatchedChild(cmd *exec.Cmd) (*Child, error) {
	return startChild(cmd, syscall.SIGKILL, startWatched)
}
