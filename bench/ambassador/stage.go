package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/bench/harness"
	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/sagahttp"
	"github.com/troupe-go/troupe/internal/sidecar"
	"github.com/troupe-go/troupe/topics"
)

// A stage holds the servers.
type stage struct {
	sizes
	harness.Servers
	concurrency []int
	profiles    string
}

const (
	partitions = 8
	keys       = 10_000
)

func (s *stage) open(ctx context.Context) error {
	return s.Open(ctx, nil, kgo.MaxBufferedRecords(50_000))
}

// A run is one ambassador with its database, topics and service.
type run struct {
	*harness.System
	hop     topics.Hop
	url     string // of its database
	pool    *pgxpool.Pool
	child   *devstack.Child
	folder  string
	output  bytes.Buffer
	profile string // "", or the start of the name of a profile
}

// prepare creates a database and fills the topic.
func (s *stage) prepare(ctx context.Context, messages, payloadBytes int) (_ *run, err error) {
	r := &run{System: s.NewSystem(ctx)}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	r.hop = topics.MustHop("bench", r.Flow)
	if s.profiles != "" {
		r.profile = filepath.Join(s.profiles, "ambassador")
	}
	if r.url, err = r.Database(ctx, ""); err != nil {
		return nil, err
	}
	if r.pool, err = r.Pool(ctx, r.url, 1); err != nil {
		return nil, err
	}
	if err := kafka.Provision(ctx, s.Client, kafka.Topic{Name: r.hop.Commands(), Partitions: partitions}); err != nil {
		return nil, err
	}
	payload, err := json.Marshal(map[string]string{"order": "o-1", "padding": strings.Repeat("x", payloadBytes)})
	if err != nil {
		return nil, err
	}
	return r, s.Produce(ctx, messages, func(i int) *kgo.Record {
		return kafka.Record(envelope.Message{
			Topic: r.hop.Commands(), Key: fmt.Appendf(nil, "o-%d", i%keys), Payload: payload, ID: envelope.NewID(), Type: "Charge",
			Source: "bench", ContentType: envelope.JSON,
		})
	})
}

// A task is one run of troupe ambassador.
type task struct {
	Args    []string
	Profile string
}

// start starts the ambassador.
func (r *run) start(ctx context.Context, service string, concurrency int, more ...string) (err error) {
	if r.folder, err = os.MkdirTemp("", "troupe-bench-"); err != nil {
		return err
	}
	file := filepath.Join(r.folder, "ambassador.yaml")
	if err := os.WriteFile(file, []byte("commands: [{type: Charge, path: /}]\n"), 0o600); err != nil {
		return err
	}
	k := task{Args: append([]string{
		"--config", file, "--database-url", r.url, "--brokers", strings.Join(r.Kafka.Addrs(), ","), "--hop", r.hop.String(),
		"--service-url", service, "--concurrency", fmt.Sprint(concurrency), "--admin", "127.0.0.1:0", "--log-level", "error",
	}, more...)}
	if r.profile != "" {
		k.Profile = fmt.Sprintf("%s-%d-%s.pprof", r.profile, concurrency, r.hop.Name())
	}
	r.child, err = harness.StartTask(ctx, k, &r.output, &r.output)
	return err
}

// close stops the ambassador with SIGTERM, and removes its database and files.
func (r *run) close() (err error) {
	if r.child != nil {
		if err = errors.Join(r.child.Signal(syscall.SIGTERM), r.child.Wait()); err != nil {
			err = errors.Join(err, errors.New(r.output.String()))
		}
	}
	return errors.Join(err, r.Close(), os.RemoveAll(r.folder))
}

func (r *run) process() harness.Process { return harness.Process(r.child.Pid()) }

func (r *run) count(ctx context.Context, table string) (n int, err error) {
	err = r.pool.QueryRow(ctx, "SELECT count(*) FROM "+table).Scan(&n)
	return n, err
}

// runAmbassador runs the ambassador in the child process.
func runAmbassador(ctx context.Context, k task) error {
	stop, err := harness.Profile(k.Profile)
	if err != nil {
		return err
	}
	defer stop()
	if status := (sidecar.Program{Args: k.Args, Stdout: os.Stdout, Stderr: os.Stderr, Parts: sagahttp.NewServer}).Ambassador(ctx); status != 0 {
		return fmt.Errorf("status %d", status)
	}
	return nil
}
