package devstack

import (
	"os/exec"
	"syscall"
)

// startTied makes the kernel signal the child when the calling thread ends; the caller keeps that thread. The Go runtime sets the
// signal after it has changed the user, which would clear it.
func startTied(cmd *exec.Cmd, atParentsEnd syscall.Signal) (release func(), err error) {
	ownGroup(cmd)
	cmd.SysProcAttr.Pdeathsig = atParentsEnd
	return func() {}, cmd.Start()
}
