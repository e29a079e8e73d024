package run

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/internal/demo"
)

const (
	readyLimit = 2 * time.Minute  // for all processes together, at the start and after chaos
	stopLimit  = 45 * time.Second // for the end after SIGTERM: longer than the process gives its work, as the machine may be busy
)

// A fleet holds the processes of a run: four services and a relay for each.
type fleet struct {
	processes []*process
	group     *errgroup.Group
	running   context.Context // ends when a process cannot be kept running
	stopping  chan struct{}
	stopped   bool
}

// newFleet prepares the processes and starts none. databases are URLs by service.
func newFleet(program []string, s settings, databases map[string]string, dir string, log zerolog.Logger) (*fleet, error) {
	f := &fleet{stopping: make(chan struct{})}
	f.group, f.running = errgroup.WithContext(context.Background())
	addresses, err := freeAddresses(2 * len(services))
	if err != nil {
		return nil, err
	}
	for _, kind := range []kind{service, relay} {
		for _, name := range services {
			child, arguments := name, []string{string(kind), name}
			if kind == relay {
				child, arguments = name+"-relay", []string{string(kind)}
			}
			address := addresses[len(f.processes)]
			path, err := filepath.Abs(filepath.Join(dir, child+".log"))
			if err != nil {
				return nil, err
			}
			env := s.environment(name, child, databases[name], address)
			f.processes = append(f.processes, &process{
				name: child, kind: kind, address: address, logPath: path, log: log.With().Str("process", child).Logger(),
				program: program,
				command: func(program []string) *exec.Cmd {
					cmd := exec.Command(program[0], slices.Concat(program[1:], []string{ChildCommand}, arguments)...)
					cmd.Env = env
					return cmd
				},
			})
		}
	}
	return f, nil
}

// start starts the processes: the services first, since they create the tables that the relays read.
func (f *fleet) start(ctx context.Context) error {
	for _, kind := range []kind{service, relay} {
		for _, p := range f.of(kind) {
			f.group.Go(func() error { return p.keep(f.running, f.stopping) })
		}
		if err := f.ready(ctx, f.of(kind)); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) of(k kind) []*process {
	return slices.DeleteFunc(slices.Clone(f.processes), func(p *process) bool { return p.kind != k })
}

// url returns the root of the named service's HTTP API. It stays the same when the service is killed and restarted.
func (f *fleet) url(name string) string {
	return "http://" + f.processes[slices.Index(services, name)].address
}

// ready waits until /readyz of every process answers with success.
func (f *fleet) ready(ctx context.Context, processes []*process) error {
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	limit := time.Now().Add(readyLimit)
	for _, p := range processes {
		var last error
		ready, err := untilDone(ctx, 20*time.Millisecond, time.Until(limit), func() (any, bool, error) {
			if f.running.Err() != nil {
				return nil, false, f.group.Wait()
			}
			last = demo.CheckReady(ctx, client, p.address)
			return nil, last == nil, nil
		})
		if err != nil {
			return err
		}
		if !ready {
			return fmt.Errorf("%s is not ready after %s: %w; its log ends with\n%s", p.name, readyLimit, last, tail(p.logPath))
		}
	}
	return nil
}

// stop ends every process and waits for them. It may be called again.
func (f *fleet) stop() error {
	if !f.stopped {
		f.stopped = true
		close(f.stopping)
	}
	return f.group.Wait()
}

// faults lists the processes that ended by themselves, with the reason. Call it only after stop.
func (f *fleet) faults() []string {
	var all []string
	for _, p := range f.processes {
		for _, fault := range p.faults {
			all = append(all, p.name+": "+fault)
		}
	}
	return all
}

// unclean lists the processes that did not end with status 0 within stopLimit after SIGTERM.
func (f *fleet) unclean() []string {
	var all []string
	for _, p := range f.processes {
		if p.end != "" {
			all = append(all, p.name+": "+p.end)
		}
	}
	return all
}

// tail returns the last lines of a log, for errors.
func tail(path string) string {
	const lines = 5
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
