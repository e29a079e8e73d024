package devstack

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Child is a process that ends with this one: when this process exits or is killed, even by SIGKILL, the operating system or a
// watcher signals the child. Children of the child are not signalled.
type Child struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // result of Wait, valid once done is closed
}

// StartChild starts cmd so that it is killed when this process ends. It takes cmd over: the caller reads neither its Process nor
// its ProcessState and does not call its Wait. The child has a process group of its own, so that Ctrl-C in a terminal signals
// only the parent, which then stops its children in order. On Windows the child outlives a killed parent.
func StartChild(cmd *exec.Cmd) (*Child, error) {
	return startChild(cmd, syscall.SIGKILL, startTied)
}

// starter starts cmd so that it gets the signal when this process ends. Its caller calls release once the child has ended.
type starter func(cmd *exec.Cmd, atParentsEnd syscall.Signal) (release func(), err error)

// startChild is StartChild with a choice of the signal after the parent's death, and of the mechanism.
func startChild(cmd *exec.Cmd, atParentsEnd syscall.Signal, start starter) (*Child, error) {
	c := &Child{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// Linux sends the signal when the thread that started the child ends, not the process. This thread only waits for the
		// child, and is never unlocked, so that it ends with this goroutine and no other code inherits it.
		runtime.LockOSThread()
		release, err := start(cmd, atParentsEnd)
		started <- err
		if err != nil {
			return
		}
		c.err = cmd.Wait()
		release()
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// Pid returns the process id. It is not valid after Done.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Done returns a channel that is closed when the child has ended and its output is written.
func (c *Child) Done() <-chan struct{} { return c.done }

// Wait blocks until the child has ended and returns the result of exec.Cmd.Wait. It may be called any number of times.
func (c *Child) Wait() error {
	<-c.done
	return c.err
}

// Signal sends sig, or returns os.ErrProcessDone if the child has ended.
func (c *Child) Signal(sig os.Signal) error { return c.cmd.Process.Signal(sig) }

// Kill sends SIGKILL and does not wait. A child that has ended is no error.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill()
}
