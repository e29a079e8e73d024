package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/bench/harness"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/inventory"
	"github.com/troupe-go/troupe/internal/demo/order"
	"github.com/troupe-go/troupe/internal/demo/payment"
	"github.com/troupe-go/troupe/internal/demo/shipping"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/relay"
)

// A stage holds the servers.
type stage struct {
	sizes
	harness.Servers
	command  string // that runs during a third kind of round
	registry *devstack.Registry
}

func (s *stage) open(ctx context.Context) (err error) {
	if err := s.Open(ctx, map[string]string{"max_connections": "400"}, kgo.UnknownTopicRetries(-1)); err != nil {
		return err
	}
	s.registry, err = devstack.OpenRegistry(ctx)
	return err
}

func (s *stage) close() (err error) {
	if s.registry != nil {
		err = s.registry.Close()
	}
	return errors.Join(err, s.Close())
}

// kind returns rounds of a style, during which the command runs.
func (s *stage) kind(style demo.Style, command string) kind {
	name := string(style)
	if command != "" {
		name += ", beside"
	}
	return kind{command: command, Contender: &harness.Contender[figures]{
		Name: name, Run: func(ctx context.Context) (figures, error) { return s.round(ctx, style, command) },
	}}
}

var services = map[string]demo.Service{"order": order.Run, "payment": payment.Run, "inventory": inventory.Run, "shipping": shipping.Run}

// A system is the running order flow.
type system struct {
	*harness.System
	stage   *stage
	url     string                   // of the order service
	pools   map[string]*pgxpool.Pool // by service
	folder  string                   // "", or a folder to remove
	process harness.Process          // of the command; 0 if none runs
}

func (s *stage) start(ctx context.Context, style demo.Style, command string) (y *system, err error) {
	y = &system{System: s.NewSystem(ctx), stage: s, pools: make(map[string]*pgxpool.Pool)}
	var ready []string
	for name, service := range services {
		address, err := freeAddress()
		if err != nil {
			return y, err
		}
		ready = append(ready, "http://"+address)
		if name == "order" {
			y.url = "http://" + address
		}
		url, err := y.Database(ctx, "_"+name)
		if err != nil {
			return y, err
		}
		if y.pools[name], err = y.Pool(ctx, url, 0); err != nil {
			return y, err
		}
		y.Go(func(ctx context.Context) error {
			return service(ctx, demo.Config{
				DatabaseURL: url, Brokers: s.Kafka.Addrs(), Registry: s.registry.URL(), Style: style, Flow: y.Flow, Listen: address,
			})
		})
		r, err := relay.New(relay.Config{Pool: y.pools[name], Brokers: s.Kafka.Addrs(), Service: name})
		if err != nil {
			return y, err
		}
		y.Go(r.Run)
	}
	for _, url := range ready {
		if err := y.ready(url); err != nil {
			return y, err
		}
	}
	if command != "" {
		return y, y.runCommand(command)
	}
	return y, nil
}

func (y *system) ready(url string) error {
	var last error
	err := harness.Until(y.Context, patience, url+"/readyz", func(context.Context) (bool, error) {
		response, err := http.Get(url + "/readyz")
		if err != nil {
			last = err
			return false, nil
		}
		defer response.Body.Close()
		reason, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		last = fmt.Errorf("%s: %s", response.Status, bytes.TrimSpace(reason))
		return response.StatusCode == http.StatusOK, nil
	})
	switch {
	case err == nil:
		return nil
	case y.Context.Err() != nil:
		return y.Wait()
	}
	return fmt.Errorf("%w: %w", err, last)
}

// runCommand runs a command, with a database of its own, until the system is closed.
func (y *system) runCommand(command string) error {
	database, err := y.Database(y.Context, "_beside")
	if err != nil {
		return err
	}
	declared, err := y.declared(y.Context)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(y.Context, "sh", "-c", "exec "+command)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "KAFKA_BROKERS="+strings.Join(y.Kafka.Addrs(), ","), "TROUPE_FLOW="+y.Flow, "DATABASE_URL="+database,
		"REACTIONS="+declared)
	if err := cmd.Start(); err != nil {
		return err
	}
	y.process = harness.Process(cmd.Process.Pid)
	y.Go(func(ctx context.Context) error {
		if err := cmd.Wait(); ctx.Err() == nil {
			return fmt.Errorf("%s: ended by itself: %w", command, err)
		}
		return nil
	})
	return nil
}

// commandCPU returns the processor time of the command, and of its sessions at the server, in seconds.
func (y *system) commandCPU(ctx context.Context) (command, sessions float64, err error) {
	if y.process == 0 {
		return 0, 0, nil
	}
	rows, err := y.pools["order"].Query(ctx, "SELECT pid FROM pg_stat_activity WHERE datname = replace(current_database(), '_order', '_beside')")
	if err != nil {
		return 0, 0, err
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	for _, pid := range pids {
		sessions += harness.Process(pid).CPU()
	}
	return y.process.CPU(), sessions, err
}

// declared returns a folder with the services' declarations, for this system's flow.
func (y *system) declared(ctx context.Context) (string, error) {
	checkout, err := harness.Checkout(ctx)
	if err != nil {
		return "", err
	}
	folder, err := os.MkdirTemp("", y.Flow)
	if err != nil {
		return "", err
	}
	y.folder = folder
	for service := range services {
		text, err := os.ReadFile(filepath.Join(checkout, "internal", "demo", service, "reactions.json"))
		if err != nil {
			return "", err
		}
		if err := os.MkdirAll(filepath.Join(folder, service), 0o700); err != nil {
			return "", err
		}
		text = bytes.ReplaceAll(text, []byte(`"order.`), []byte(`"`+y.Flow+`.`))
		if err := os.WriteFile(filepath.Join(folder, service, "reactions.json"), text, 0o600); err != nil {
			return "", err
		}
	}
	return folder, nil
}

func (y *system) close() error {
	return errors.Join(y.Close(), os.RemoveAll(y.folder))
}

// messages returns the number of messages on the flow's topics of commands and events.
func (y *system) messages(ctx context.Context) (n int64, err error) {
	var names []string
	for name := range services {
		names = append(names, y.Flow+"."+name+".events", y.Flow+"."+name+".commands")
	}
	ends, err := kadm.NewClient(y.Client).ListEndOffsets(ctx, names...)
	if err != nil {
		return 0, err
	}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Err == nil { // a topic without messages may not exist
			n += o.Offset
		}
	})
	return n, nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
