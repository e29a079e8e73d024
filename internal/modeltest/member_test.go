package modeltest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/topics"
)

// memberEnv holds the task of this test binary when it runs as a member of a group.
const memberEnv = "TROUPE_MODEL_MEMBER"

const (
	memberUp  = "member is up"
	auditName = "audit"
)

// task configures a member.
type task struct {
	Setup   setup
	Local   bool
	URL     string
	Brokers []string
	Flow    string
	Delay   time.Duration // of the retry topic
	Die     string        // the hook in which it dies
	Nth     int64         // at which call
	Freeze  bool          // stops there instead
	Older   bool          // of an earlier version
	Audit   bool          // the second group runs, too
}

func hops(flow string) (hop topics.Hop, ups [2]topics.Hop) {
	return topics.MustHop(flow, "pay"), [2]topics.Hop{topics.MustHop(flow, "order"), topics.MustHop(flow, "stock")}
}

// beMember runs the participants of a task until SIGTERM, or until its parent ends.
func beMember(text string) {
	var k task
	must(json.Unmarshal([]byte(text), &k))
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fmt.Fprintln(os.Stderr, memberUp)
	hop, ups := hops(k.Flow)
	var run errgroup.Group
	run.Go(func() error {
		p, err := participant.New(k.config(ctx, hop, hop.String()))
		if err != nil {
			return err
		}
		k.register(p, hop, ups)
		return p.Run(ctx)
	})
	if k.Audit {
		run.Go(func() error {
			p, err := participant.New(k.config(ctx, topics.MustHop(k.Flow, auditName), k.Flow+"."+auditName))
			if err != nil {
				return err
			}
			hands{p: p, group: p.Group(), audit: true}.listen(ups[0])
			return p.Run(ctx)
		})
	}
	must(run.Wait())
}

// config has small waits and, for members that die, a short session: a process that is paused for longer loses its partitions,
// which no promise forbids.
func (k task) config(ctx context.Context, hop topics.Hop, group string) participant.Config {
	config, err := pgxpool.ParseConfig(k.URL)
	must(err)
	config.MaxConns = 8
	config.ConnConfig.RuntimeParams["application_name"] = memberEnv
	if k.Setup.Setting != "" {
		config.ConnConfig.RuntimeParams[k.Setup.Setting] = k.Setup.Value
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	must(err)
	session := time.Second
	if os.Getenv("TROUPE_KAFKA") != "" {
		session = 6 * time.Second
	}
	c := participant.Config{
		Pool: pool, Brokers: k.Brokers, Local: k.Local, Hop: hop, Group: group, Partitions: k.Setup.Partitions,
		Batch: k.Setup.Batch, Immediate: k.Setup.Immediate, Log: zerolog.New(os.Stderr).With().Timestamp().Logger(),
		Retry: retry.Policy{Initial: 20 * time.Millisecond, Cap: 100 * time.Millisecond, Attempts: k.Setup.Attempts},
		Kafka: []kgo.Opt{
			kgo.SessionTimeout(session), kgo.RebalanceTimeout(session * 9 / 10), kgo.HeartbeatInterval(100 * time.Millisecond),
			kgo.MetadataMinAge(50 * time.Millisecond),
		},
	}
	if k.Local {
		c.Stale = 2 * time.Second
	}
	if group == hop.String() && k.Die != "" {
		c.Hooks = k.hooks()
	}
	return c
}

// hooks lets the member die, or freeze, at a point.
func (k task) hooks() participant.Hooks {
	var calls atomic.Int64
	die := func(point string) {
		if k.Die != point || calls.Add(1) != k.Nth {
			return
		}
		self, err := os.FindProcess(os.Getpid())
		must(err)
		if k.Freeze {
			resumed := make(chan os.Signal, 1)
			signal.Notify(resumed, syscall.SIGCONT)
			must(self.Signal(syscall.SIGSTOP))
			<-resumed // a thread may continue for a while before it is stopped
			return
		}
		must(self.Kill())
		select {}
	}
	return participant.Hooks{
		BeforeHandler: func(participant.Delivery) { die("before the handler") },
		BeforeCommit:  func(participant.Delivery) { die("before the commit") },
		AfterCommit:   func(participant.Delivery) { die("after the commit") },
		Failed:        func(participant.Delivery) { die("after a failed attempt") },
		BeforeOffsets: func(map[string]map[int32]int64) { die("before the commit of offsets") },
		AfterOffsets:  func(map[string]map[int32]int64) { die("after the commit of offsets") },
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func decode(payload []byte) (b body) {
	must(json.Unmarshal(payload, &b))
	return b
}

func redriveOf(m envelope.Message) int {
	for _, h := range m.Extra {
		if h.Key == deadletter.HeaderRedrive {
			n, err := strconv.Atoi(string(h.Value))
			must(err)
			return n
		}
	}
	return 0
}

// member is a process that runs a task.
type member struct {
	*exec.Cmd
	ended  chan error
	log    *safeBuffer
	hold   io.Closer
	frozen bool
	older  bool
	local  bool
	audit  bool
}

func startMember(k task) (*member, error) {
	text, err := json.Marshal(k)
	if err != nil {
		return nil, err
	}
	m := &member{Cmd: exec.Command(os.Args[0]), ended: make(chan error, 1), log: &safeBuffer{}, older: k.Older, local: k.Local, audit: k.Audit}
	m.Env = append(os.Environ(), memberEnv+"="+string(text))
	m.Stderr = m.log
	if m.hold, err = m.StdinPipe(); err != nil {
		return nil, err
	}
	if err := m.Start(); err != nil {
		return nil, err
	}
	go func() {
		m.ended <- m.Wait()
		close(m.ended)
	}()
	return m, nil
}

// kill ends the member at once.
func (m *member) kill() {
	_ = m.hold.Close()
	_ = m.Process.Kill()
	<-m.ended
}

func (m *member) up() bool { return strings.Contains(m.log.String(), memberUp) }

// dead reports whether the process has ended by itself.
func (m *member) dead() bool {
	select {
	case <-m.ended:
		return true
	default:
		return false
	}
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
