//go:build unix && !linux

package devstack

import (
	"os/exec"
	"syscall"
)

func startTied(cmd *exec.Cmd, atParentsEnd syscall.Signal) (release func(), err error) {
	return startWatched(cmd, atParentsEnd)
}
