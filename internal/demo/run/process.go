package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
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
	command func() *exec.Cmd
	log     zerolog.Logger

	mu     sync.Mutex
	child  *devstack.Child // nil while there is none
	killed bool            // this child was killed by us
	said   report
}

// A report is the history of a process.
type report struct {
	kills  int
	faults []string // how it ended without SIGTERM or SIGKILL from us
	end    string   // the error of its last end; "" for a clean one
}

// keep keeps a child running until stop is closed, and then ends it: SIGTERM, and SIGKILL after stopLimit. It gives up on a
// process that ends by itself more than maxFaults times.
func (p *process) keep(ctx context.Context, stop <-chan struct{}) error {
	for {
		if err := p.start(); err != nil {
			return fmt.Errorf("start %s: %w", p.name, err)
		}
		select {
		case <-stop:
			p.end()
			return nil
		case <-ctx.Done():
			p.end()
			return nil
		case <-p.child.Done():
		}
		if p.wasKilled() {
			continue
		}
		fault := p.fault()
		p.log.Error().Str("status", fault).Msg("ended by itself")
		if len(p.report().faults) >= maxFaults {
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

func (p *process) start() error {
	// Other users may read the log: the permissions of a shared folder decide.
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := p.command()
	cmd.Stdout, cmd.Stderr = log, log
	child, err := devstack.StartChild(cmd)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.child, p.killed = child, false
	p.log.Info().Int("pid", child.Pid()).Msg("started")
	return nil
}

func (p *process) end() {
	began := time.Now()
	_ = p.child.Signal(syscall.SIGTERM) // an error means that it has ended: then it has a status as well
	end := ""
	select {
	case <-p.child.Done():
		end = status(p.child.Wait())
	case <-time.After(stopLimit):
		end = fmt.Sprintf("still running %s after SIGTERM", stopLimit)
		p.child.Kill()
		<-p.child.Done()
	}
	p.log.Info().Dur("took", time.Since(began)).Str("status", end).Msg("stopped")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.child = nil
	p.said.end = end
}

// kill sends SIGKILL to the current child. It returns false if there is none, or it is killed already.
func (p *process) kill() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child == nil || p.killed {
		return false
	}
	p.killed = true
	p.said.kills++
	p.child.Kill()
	return true
}

func (p *process) wasKilled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

func (p *process) fault() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	fault := status(p.child.Wait())
	if fault == "" {
		fault = "exit status 0"
	}
	p.child = nil
	p.said.faults = append(p.said.faults, fault)
	return fault
}

func (p *process) report() report {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said
}

// status returns how a process ended; "" for exit status 0.
func status(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// ready requests /readyz of the process.
func (p *process) ready(ctx context.Context, client *http.Client) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+"/readyz", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	reason, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	if answer.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(reason)))
	}
	return nil
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
