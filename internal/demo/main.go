package demo

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/internal/address"
	"github.com/troupe-go/troupe/internal/plain"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// Main is the main function of a service: it reads flags and environment, runs the service until SIGINT or SIGTERM, and returns
// the exit code: 0 done, 1 failed, 2 usage. A second signal ends the process at once.
//
// With the argument healthcheck it asks the service that runs with the same configuration whether it is ready.
func Main(name string, run Service) int {
	plain.StandardLog(os.Stderr)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return program{name: name, run: run, args: os.Args[1:], stdout: os.Stdout, stderr: os.Stderr}.main(ctx)
}

type program struct {
	name   string
	run    Service
	args   []string
	stdout io.Writer
	stderr io.Writer
}

func (p program) main(ctx context.Context) int {
	cfg, err := FromEnv()
	if err != nil {
		return p.misused(err)
	}
	args, check := p.args, false
	if len(args) > 0 && args[0] == "healthcheck" {
		args, check = args[1:], true
	}
	fs := cfg.flags("demo-" + p.name)
	fs.SetOutput(io.Discard)
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		p.help(fs)
		return exitDone
	case err != nil:
		return p.misused(err)
	case fs.NArg() > 0:
		return p.misused(fmt.Errorf("unknown argument %q", fs.Arg(0)))
	}
	cfg = cfg.withDefaults(p.name)
	if check {
		return p.failed(healthcheck(ctx, cfg.Listen))
	}
	if err := cfg.Validate(); err != nil {
		return p.misused(err)
	}
	cfg.Log = zerolog.New(plain.Log(p.stderr)).With().Timestamp().Str("service", p.name).Logger()
	return p.failed(p.run(ctx, cfg))
}

func (p program) help(fs *flag.FlagSet) {
	fmt.Fprintf(p.stdout, `The %[1]s service of the order flow.

  demo-%[1]s --database-url postgres://localhost/%[1]s --brokers localhost:9092 --registry http://localhost:8090
  demo-%[1]s healthcheck

Flags override the environment.

`, p.name)
	fs.SetOutput(p.stdout)
	fs.PrintDefaults()
}

func (p program) misused(err error) int {
	fmt.Fprintf(p.stderr, "demo-%s: %s\n(--help says more)\n", p.name, address.Redact(err.Error()))
	return exitUsage
}

func (p program) failed(err error) int {
	if err == nil {
		return exitDone
	}
	fmt.Fprintf(p.stderr, "demo-%s: %s\n", p.name, address.Redact(err.Error()))
	return exitFailed
}

// healthcheck requests /readyz of the service that listens on address.
func healthcheck(ctx context.Context, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("DEMO_LISTEN: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return CheckReady(ctx, http.DefaultClient, net.JoinHostPort(host, port))
}

// CheckReady returns an error unless the process at the address answers /readyz with success.
func CheckReady(ctx context.Context, client *http.Client, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		reason, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		return fmt.Errorf("not ready: %s: %s", response.Status, bytes.TrimSpace(reason))
	}
	return nil
}
