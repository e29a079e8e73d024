package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/troupe-go/troupe/bench/harness"
	"github.com/troupe-go/troupe/internal/devstack"
)

// A relayer is a program in one configuration that publishes rows to Kafka.
type relayer interface {
	String() string
	// table returns the table that it reads.
	table() table
	// prime makes the server keep the rows for it. It is called before there are rows.
	prime(context.Context, *bed) error
	// start runs it until stop.
	start(context.Context, *bed) (*program, error)
}

// A program is a process that was started here and ends with this one.
type program struct {
	harness.Process
	child *devstack.Child
	log   string
	begun func(context.Context) (bool, error) // reports whether it has connected to the server
}

// ready waits until it publishes, or would publish if there were rows.
func (p *program) ready(ctx context.Context) error {
	return harness.Until(ctx, 2*time.Minute, "it does not begin", func(ctx context.Context) (bool, error) {
		if err := p.alive(); err != nil {
			return false, err
		}
		return p.begun(ctx)
	})
}

// startReady starts r and waits until it is ready.
func (b *bed) startReady(ctx context.Context, r relayer) (*program, error) {
	p, err := r.start(ctx, b)
	if err != nil {
		return nil, err
	}
	if err := p.ready(ctx); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (b *bed) run(name string, cmd *exec.Cmd) (*program, error) {
	p := &program{log: filepath.Join(b.dir, b.name+"-"+name+".log")}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if p.child, err = devstack.StartChild(cmd); err != nil {
		return nil, err
	}
	p.Process = harness.Process(p.child.Pid())
	return p, nil
}

// alive returns an error with the program's last output, once the program has ended.
func (p *program) alive() error {
	select {
	case <-p.child.Done():
		return fmt.Errorf("ended by itself (%v): %s", p.child.Wait(), tail(p.log)) //nolint:errorlint // it may be nil
	default:
		return nil
	}
}

func (p *program) stop() {
	_ = p.child.Signal(syscall.SIGTERM)
	select {
	case <-p.child.Done():
	case <-time.After(30 * time.Second):
		p.child.Kill()
		<-p.child.Done()
	}
}

// A troupe is outbox-relay with some flags.
type troupe struct {
	name string
	args []string
	wal  bool // it reads from a slot
}

func (t *troupe) String() string { return t.name }
func (t *troupe) table() table   { return troupeTable }

// prime runs it until it has created its slot.
func (t *troupe) prime(ctx context.Context, b *bed) error {
	if !t.wal {
		return nil
	}
	p, err := b.startReady(ctx, t)
	if err == nil {
		p.stop()
	}
	return err
}

func (t *troupe) start(ctx context.Context, b *bed) (*program, error) {
	env := append(os.Environ(), "DATABASE_URL="+b.url(), "KAFKA_BROKERS="+strings.Join(b.addrs, ","))
	p, err := b.startRelay(append([]string{"--service", "bench"}, t.args...), env)
	if err != nil {
		return nil, err
	}
	ready := p.begun
	p.begun = func(ctx context.Context) (bool, error) {
		is, err := ready(ctx)
		return is && (!t.wal || b.streams(ctx)), err
	}
	return p, nil
}

// startRelay starts outbox-relay. It has begun once it is ready.
func (b *bed) startRelay(args, env []string) (*program, error) {
	port, err := harness.FreePorts(2)
	if err != nil {
		return nil, err
	}
	admin := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	cmd := exec.Command(b.relay, append([]string{"run", "--admin", admin}, args...)...)
	cmd.Env = env
	p, err := b.run("outbox-relay", cmd)
	if err != nil {
		return nil, err
	}
	p.begun = func(ctx context.Context) (bool, error) { return answers(ctx, "http://"+admin+"/readyz"), nil }
	return p, nil
}

func answers(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// streams reports whether our relay streams: a slot is active while it is being created too, when the relay polls the table.
func (b *bed) streams(ctx context.Context) bool {
	const stored = "SELECT EXISTS (SELECT FROM troupe.relay_state WHERE source = 'wal' AND sweep IS NULL AND published IS NOT NULL)"
	yes, err := harness.Query[bool](ctx, b.socketURL(), stored)
	return err == nil && yes && b.reads(ctx)
}

// reads reports whether a connection reads from a slot of the database.
func (b *bed) reads(ctx context.Context) bool {
	const active = "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE database = $1 AND active)"
	yes, err := harness.Query[bool](ctx, b.socketURL(), active, b.name)
	return err == nil && yes
}

// troupe returns outbox-relay in one of its ways. If it is not available, why has the reason.
func (s *stage) troupe(name string) (r relayer, why string) {
	var t *troupe
	switch name {
	case "wal":
		t = &troupe{name: "wal", args: []string{"--source", "wal"}, wal: true}
	case "exactly-once":
		t = &troupe{name: "wal, exactly once", args: []string{"--source", "wal", "--delivery", "exactly-once"}, wal: true}
	case "poll":
		t = &troupe{name: "poll", args: []string{"--source", "poll"}}
	case mappedWay:
		return &mapped{name: "mapped table, log", wal: true}, ""
	case sweptWay:
		return &mapped{name: "mapped table, first start"}, ""
	}
	for i := 0; i < len(t.args); i += 2 {
		if !offers(s.usage, t.args[i], t.args[i+1]) {
			return nil, fmt.Sprintf("this outbox-relay has no %s %s", t.args[i], t.args[i+1])
		}
	}
	return t, ""
}

// offers reports whether a help text lists a flag's value, as in "--source auto|poll".
func offers(usage, flag, value string) bool {
	for line := range strings.Lines(usage) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != flag {
			continue
		}
		if slices.Contains(strings.Split(fields[1], "|"), value) {
			return true
		}
	}
	return false
}
