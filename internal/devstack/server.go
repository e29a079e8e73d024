package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// server is one Postgres that runs here, from its first start to Close.
type server struct {
	binaries binaries
	account  account
	settings map[string]string
	scratch  *scratch // the socket's folder, and the data unless the caller gave a folder
	data     string
	sockets  string
	logPath  string
	port     int
	fixed    bool // the port is the caller's

	mu    sync.Mutex
	child *Child
	gone  <-chan struct{} // closed when the postmaster and every backend have ended
}

// start runs the postmaster and returns when it answers. After an error nothing runs.
func (s *server) start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running() {
		return errors.New("already running")
	}
	if err := s.configure(); err != nil {
		return err
	}
	log, err := os.OpenFile(s.logPath, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	before, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if err := s.run(log); err != nil {
		return err
	}
	if err := s.ready(ctx); err != nil {
		s.child.Kill()
		<-s.gone
		said, _ := io.ReadAll(io.LimitReader(io.NewSectionReader(log, before, 1<<20), 4096))
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(said)))
	}
	return nil
}

// run starts the postmaster. It and the backends it forks inherit two files: the lock of the scratch folder, and the writing end
// of a pipe, which ends when all of them have ended. A backend outlives a killed postmaster by some milliseconds, in which no
// other may start.
func (s *server) run(log *os.File) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer w.Close()
	cmd := exec.Command(s.binaries.path("postgres"), "-D", s.data)
	cmd.Env = serverEnv()
	cmd.Dir = s.data
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{s.scratch.lock, w}
	cmd.SysProcAttr = s.account.attributes()
	// SIGQUIT is Postgres' immediate shutdown: no process is left to wait for a checkpoint.
	child, err := startChild(cmd, syscall.SIGQUIT, startTied)
	if err != nil {
		_ = r.Close()
		return err
	}
	gone := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, r)
		_ = r.Close()
		<-child.Done()
		close(gone)
	}()
	s.child, s.gone = child, gone
	return nil
}

func (s *server) ready(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, s.socketURL("postgres").String())
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-tick.C:
		case <-s.child.Done():
			return fmt.Errorf("ended while starting: %w", s.child.Wait())
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", errors.Join(ctx.Err(), err))
		}
	}
}

// stop sends sig and waits until all processes of the server have ended. If the server does not run, it does nothing.
func (s *server) stop(ctx context.Context, sig os.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return nil
	}
	if err := s.child.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("still running: %w", ctx.Err())
	}
}

func (s *server) isStandby() bool {
	_, err := os.Stat(filepath.Join(s.data, "standby.signal"))
	return err == nil
}

func (s *server) running() bool {
	if s.child == nil {
		return false
	}
	select {
	case <-s.gone:
		return false
	default:
		return true
	}
}

func (s *server) socketURL(database string) *url.URL {
	query := url.Values{"host": {s.sockets}, "port": {strconv.Itoa(s.port)}}
	return &url.URL{Scheme: "postgres", User: url.User(superuser), Path: "/" + database, RawQuery: query.Encode()}
}

// freePort returns a port that was free a moment ago.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// newServer makes the folders and picks a port; nothing runs yet.
func newServer(ctx context.Context, cfg PostgresConfig) (*server, error) {
	s := &server{account: serverAccount(), settings: cfg.Settings, port: cfg.Port, fixed: cfg.Port != 0}
	var err error
	if cfg.Binaries != "" {
		s.binaries, err = inspect(ctx, cfg.Binaries, s.account)
	} else {
		s.binaries, err = findBinaries(ctx, s.account)
	}
	if err != nil {
		return nil, err
	}
	if s.scratch, err = newScratch("pg", s.account); err != nil {
		return nil, err
	}
	if err := s.layOut(ctx, cfg.Dir); err != nil {
		return nil, errors.Join(err, s.scratch.remove())
	}
	return s, nil
}

func (s *server) layOut(ctx context.Context, dir string) error {
	if dir == "" {
		dir = s.scratch.dir
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := s.account.reach(dir); err != nil {
		return err
	}
	s.data, s.logPath, s.sockets = filepath.Join(dir, "data"), filepath.Join(dir, "postgres.log"), filepath.Join(s.scratch.dir, "s")
	if err := os.Mkdir(s.sockets, 0o700); err != nil {
		return err
	}
	if err := s.account.give(s.sockets); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(s.data, "PG_VERSION")); errors.Is(err, os.ErrNotExist) {
		if err := initData(ctx, s.binaries, s.account, s.data); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if s.fixed {
		return nil
	}
	s.port, err = freePort()
	return err
}

// keepsData reports whether the data outlives the server.
func (s *server) keepsData() bool { return filepath.Dir(s.data) != s.scratch.dir }
