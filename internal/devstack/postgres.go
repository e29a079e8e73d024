package devstack

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/internal/address"
)

// PostgresConfig configures an embedded Postgres. The zero value runs a throw-away one.
type PostgresConfig struct {
	// Dir has the server's data and its log, postgres.log, and is kept; a folder of an earlier run is used again. A standby is a
	// copy of a stopped server's folder with a file standby.signal in data, and Password is its primary's. For root, the
	// server runs as another user, who must be able to enter Dir. Default: a temporary folder, removed at Close.
	Dir string
	// Settings are lines of postgresql.conf. They override the defaults, which are durable (fsync on) and ready for logical
	// replication, with 300 connections.
	Settings map[string]string
	// Binaries is the folder of the programs postgres and initdb, version 14 or newer. Default: the ones on PATH, else the newest
	// that a package installed, else FetchPostgres.
	Binaries string
	// Port is where it listens, on 127.0.0.1. Default: a free one.
	Port int
	// Password is the superuser's over TCP. Default: a random one.
	Password string
	// Log gets a line for each start and end. The zero value discards them.
	Log zerolog.Logger
}

// Postgres is a server: one that runs here, or one that TROUPE_POSTGRES names.
type Postgres struct {
	url    url.URL // TCP, of the default database
	server *server // nil if it runs elsewhere
	log    zerolog.Logger
}

var errElsewhere = errors.New("the server was not started here")

// StartPostgres starts a server on 127.0.0.1 and returns when it answers; ctx bounds the start only. Its superuser is postgres,
// with a password over TCP and none over the socket. It ends at Close or with this process.
func StartPostgres(ctx context.Context, cfg PostgresConfig) (*Postgres, error) {
	began := time.Now()
	s, err := newServer(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("start Postgres: %w", err)
	}
	password := cmp.Or(cfg.Password, rand.Text())
	if err := s.startFirst(ctx, password); err != nil {
		return nil, fmt.Errorf("start Postgres: %w", errors.Join(err, s.scratch.remove()))
	}
	cfg.Log.Info().Str("version", s.binaries.version).Int("port", s.port).Str("data", s.data).Dur("took", time.Since(began)).Msg("postgres started")
	return &Postgres{
		url: url.URL{
			Scheme: "postgres", User: url.UserPassword(superuser, password),
			Host: fmt.Sprintf("127.0.0.1:%d", s.port), Path: "/postgres", RawQuery: "sslmode=disable",
		},
		server: s,
		log:    cfg.Log,
	}, nil
}

// startFirst tries again with other ports, because another program may have taken the free one meanwhile. It does not change a
// configured port.
func (s *server) startFirst(ctx context.Context, password string) error {
	err := s.start(ctx)
	for range 2 {
		if err == nil || ctx.Err() != nil || s.fixed {
			break
		}
		if s.port, err = freePort(); err != nil {
			return err
		}
		err = s.start(ctx)
	}
	if err != nil {
		return err
	}
	if s.isStandby() { // it has the roles of its primary, and refuses to change them
		return nil
	}
	err = execute(ctx, s.socketURL("postgres").String(), "ALTER ROLE "+superuser+" PASSWORD '"+strings.ReplaceAll(password, "'", "''")+"'")
	if err != nil {
		return errors.Join(err, s.stop(context.WithoutCancel(ctx), syscall.SIGKILL))
	}
	return nil
}

// OpenPostgres uses the server whose URL is in TROUPE_POSTGRES, with rights to create and drop databases, else it starts one.
func OpenPostgres(ctx context.Context, cfg PostgresConfig) (*Postgres, error) {
	text := os.Getenv("TROUPE_POSTGRES")
	if text == "" {
		return StartPostgres(ctx, cfg)
	}
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return nil, errors.New("TROUPE_POSTGRES: want a URL, postgres://user:password@host:port/postgres")
	}
	if _, err := address.ParseConn(text); err != nil {
		return nil, fmt.Errorf("TROUPE_POSTGRES: %w", err)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/postgres"
	}
	p := &Postgres{url: *u, log: cfg.Log}
	if err := execute(ctx, p.URL(""), "SELECT 1"); err != nil {
		return nil, fmt.Errorf("TROUPE_POSTGRES: %w", err)
	}
	return p, nil
}

// URL returns the URL of a database over TCP, with a role that has all rights here. "" is the database postgres, or the one that
// TROUPE_POSTGRES names.
func (p *Postgres) URL(database string) string {
	u := p.url
	if database != "" {
		u.Path = "/" + database
	}
	return u.String()
}

// SocketURL returns the URL over the Unix socket, which costs less per round trip. For a server elsewhere it returns URL.
func (p *Postgres) SocketURL(database string) string {
	if p.server == nil {
		return p.URL(database)
	}
	if database == "" {
		database = "postgres"
	}
	return p.server.socketURL(database).String()
}

// Start runs the server again after Stop or Kill, on the same port and data.
func (p *Postgres) Start(ctx context.Context) error {
	if p.server == nil {
		return errElsewhere
	}
	if err := p.server.start(ctx); err != nil {
		return fmt.Errorf("start Postgres: %w", err)
	}
	p.log.Info().Int("port", p.server.port).Msg("postgres started")
	return nil
}

// Stop ends every connection, rolls back, writes a checkpoint and returns when all processes of the server have ended.
func (p *Postgres) Stop(ctx context.Context) error {
	return p.end(ctx, syscall.SIGINT, "postgres stopped")
}

// Kill kills the server as a crash would and returns when all its processes have ended. Committed data is there after Start.
func (p *Postgres) Kill() error {
	return p.end(context.Background(), syscall.SIGKILL, "postgres killed")
}

// Restart calls Stop and Start.
func (p *Postgres) Restart(ctx context.Context) error {
	if err := p.Stop(ctx); err != nil {
		return err
	}
	return p.Start(ctx)
}

func (p *Postgres) end(ctx context.Context, sig os.Signal, said string) error {
	if p.server == nil {
		return errElsewhere
	}
	if err := p.server.stop(ctx, sig); err != nil {
		return fmt.Errorf("stop Postgres: %w", err)
	}
	p.log.Info().Msg(said)
	return nil
}

// Close stops the server and removes temporary data. A server that keeps its data writes a checkpoint first, for 15 s at most;
// after that the next start recovers it. It does nothing to a server elsewhere.
func (p *Postgres) Close() error {
	s := p.server
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	sig := syscall.SIGQUIT
	if s.keepsData() {
		sig = syscall.SIGINT
	}
	err := p.end(ctx, sig, "postgres stopped")
	if err != nil {
		err = s.stop(context.Background(), syscall.SIGKILL)
	}
	return errors.Join(err, s.scratch.remove())
}

// execute runs one statement on a connection of its own.
func execute(ctx context.Context, address, statement string) error {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}
