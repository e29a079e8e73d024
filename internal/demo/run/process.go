package run

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/internal/devstack"
)

// kind is the program that a process runs.
type kind string

const (
	service kind = "service"
	relay   kind = "relay"
)

const (
	restartWait = 200 * time.Millisecond // after a process ended by itself
	maxFaults   = 10                     // how often it may
)

// A process is a member of the fleet. Its child is killed now and then, and replaced by another with the same name, address and
// log.
type process struct {
	name    string
	kind    kind
	address string // of its HTTP endpoints
	logPath string
	command func(program []string) *exec.Cmd
	log     zerolog.Logger

	mu      sync.Mutex
	program []string        // command of the next child
	child   *devstack.Child // nil while there is none
	runs    []string        // command of child
	killed  bool            // kill has ended child
	retired bool            // replace has sent SIGTERM to child

	// The history of the process. Read it only when keep has returned.
	faults []string // how it ended without SIGTERM or SIGKILL from us
	end    string   // the error of its last end; "" for a clean one
}

// keep keeps a child running until stop is closed, and then ends it: SIGTERM, and SIGKILL after stopLimit. It gives up on a
// process that ends by itself more than maxFaults times.
func (p *process) keep(ctx context.Context, stop <-chan struct{}) error {
	for {
		child, err := p.start()
		if err != nil {
			return fmt.Errorf("start %s: %w", p.name, err)
		}
		select {
		case <-stop:
			p.stop(child)
			return nil
		case <-ctx.Done():
			p.stop(child)
			return nil
		case <-child.Done():
		}
		fault := "exit status 0"
		if err := child.Wait(); err != nil {
			fault = err.Error()
		}
		killed, retired := p.forget()
		if killed || retired && fault == "exit status 0" {
			continue
		}
		p.faults = append(p.faults, fault)
		p.log.Error().Str("status", fault).Msg("ended by itself")
		if len(p.faults) >= maxFaults {
			return fmt.Errorf("%s ended by itself %d times, the last time with %s: %s", p.name, maxFaults, fault, tail(p.logPath))
		}
		select {
		case <-stop:
			return nil
		case <-ctx.Done():
			return nil
		case <-time.After(restartWait):
		}
	}
}

func (p *process) start() (*devstack.Child, error) {
	// Other users may read the log: the permissions of a shared folder decide.
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.mu.Lock()
	program := p.program
	p.mu.Unlock()
	cmd := p.command(program)
	cmd.Stdout, cmd.Stderr = log, log
	child, err := devstack.StartChild(cmd)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.child, p.runs, p.killed, p.retired = child, program, false, false
	p.mu.Unlock()
	p.log.Info().Int("pid", child.Pid()).Strs("program", program).Msg("started")
	return child, nil
}

// forget sets child to nil, and reports whether kill or replace has ended it.
func (p *process) forget() (killed, retired bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	killed, retired = p.killed, p.retired
	p.child, p.killed, p.retired = nil, false, false
	return killed, retired
}

func (p *process) stop(child *devstack.Child) {
	began := time.Now()
	_ = child.Signal(syscall.SIGTERM) // an error means that it has ended: then it has a status as well
	select {
	case <-child.Done():
		if err := child.Wait(); err != nil {
			p.end = err.Error()
		}
	case <-time.After(stopLimit):
		p.end = fmt.Sprintf("still running %s after SIGTERM", stopLimit)
		child.Kill()
		<-child.Done()
	}
	p.log.Info().Dur("took", time.Since(began)).Str("status", p.end).Msg("stopped")
	p.forget()
}

// kill sends SIGKILL to the current child. It returns false if there is none, or it is killed already.
func (p *process) kill() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child == nil || p.killed {
		return false
	}
	p.killed = true
	p.child.Kill()
	return true
}

// replace makes program the command of the next child, ends the current child with SIGTERM unless it runs program already, and
// waits until a child that runs program was started. keep reports a child that does not end with status 0 as a fault. SIGTERM is
// sent once the child accepts connections: before it handles SIGTERM, which it does first of all, the signal would end it with
// another status.
func (p *process) replace(ctx context.Context, program []string) error {
	p.mu.Lock()
	p.program = program
	p.mu.Unlock()
	replaced, err := untilDone(ctx, 20*time.Millisecond, stopLimit, func() (any, bool, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case p.child == nil, p.killed, p.retired: // a successor is about to be started
		case slices.Equal(p.runs, program):
			return nil, true, nil
		case !accepts(p.address):
		default:
			p.retired = true
			_ = p.child.Signal(syscall.SIGTERM) // fails only if the child has ended already
		}
		return nil, false, nil
	})
	if err == nil && !replaced {
		err = fmt.Errorf("%s still runs %s after SIGTERM", p.name, stopLimit)
	}
	return err
}

// accepts reports whether a process of this machine accepts connections at address.
func accepts(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// freeAddresses returns free ports of this machine below the ephemeral range (from 32768 on Linux, 49152 elsewhere): an outgoing
// connection could use one of that range while a killed process restarts.
func freeAddresses(n int) ([]string, error) {
	var addresses []string
	for misses := 0; len(addresses) < n; {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000)))
		if err != nil {
			if misses++; misses > 100 {
				return nil, fmt.Errorf("no free port: %w", err)
			}
			continue
		}
		defer l.Close() // after all n are found, so that they differ
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}
