package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/bench/harness"
	"github.com/troupe-go/troupe/bench/workload"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/migrations"
)

const (
	password    = "failover"
	database    = "shop"
	standbySlot = "standby_b"
	slot        = "troupe_" + database
	limit       = 2 * time.Minute // for one step, on a busy machine
)

// A pair is a primary, a, and its standby, b.
type pair struct {
	home    string
	a, b    *devstack.Postgres
	line    *line                  // from the standby to the primary
	leads   atomic.Pointer[string] // the address of the primary; nil: there is none
	thaw    func() error           // ends the frozen primary's silence; nil: it is not frozen
	version string

	mu      sync.Mutex
	clients []net.Conn
}

// openPair starts both servers. The standby is a copy of the stopped primary.
func openPair(ctx context.Context, folder string, c scenario) (p *pair, err error) {
	p = &pair{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.home, err = os.MkdirTemp("", "failover"); err != nil {
		return p, err
	}
	if err = os.Chmod(p.home, 0o755); err != nil { // for root, the servers run as another user
		return p, err
	}
	config := func(name string, more map[string]string) devstack.PostgresConfig {
		settings := map[string]string{
			"shared_buffers": "64MB", "wal_keep_size": "256MB", "hot_standby_feedback": "on", "wal_receiver_status_interval": "1s",
			"wal_receiver_timeout": "5s",
		}
		for key, value := range more {
			settings[key] = value
		}
		return devstack.PostgresConfig{Dir: filepath.Join(p.home, name), Binaries: folder, Password: password, Settings: settings}
	}
	if p.a, err = devstack.StartPostgres(ctx, config("a", nil)); err != nil {
		return p, err
	}
	address, err := p.a.CreateDatabase(ctx, database, "")
	if err != nil {
		return p, err
	}
	if err = migrations.Up(ctx, address); err != nil {
		return p, err
	}
	err = harness.Execute(ctx, address,
		workload.RowsTable, workload.EffectsTable,
		"SELECT pg_create_physical_replication_slot('"+standbySlot+"', true)")
	if err != nil {
		return p, err
	}
	if p.version, err = harness.Query[string](ctx, address, "SELECT split_part(current_setting('server_version'), ' ', 1)"); err != nil {
		return p, err
	}
	if err = p.copy(ctx); err != nil {
		return p, err
	}
	if err = p.a.Start(ctx); err != nil {
		return p, err
	}
	of, err := url.Parse(p.a.URL(database))
	if err != nil {
		return p, err
	}
	if p.line, err = openLine(of.Host); err != nil {
		return p, err
	}
	follow := map[string]string{
		"primary_conninfo":  fmt.Sprintf("host=127.0.0.1 port=%d user=postgres password=%s dbname=postgres application_name=b", p.line.port(), password),
		"primary_slot_name": standbySlot,
	}
	if c.copied {
		follow["sync_replication_slots"] = "on"
	}
	if p.b, err = devstack.StartPostgres(ctx, config("b", follow)); err != nil {
		return p, err
	}
	return p, p.waitFor(ctx, c)
}

// copy makes the folder of the standby.
func (p *pair) copy(ctx context.Context) error {
	if err := p.a.Stop(ctx); err != nil {
		return err
	}
	from, to := filepath.Join(p.home, "a"), filepath.Join(p.home, "b")
	if out, err := exec.CommandContext(ctx, "cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w: %s", err, out)
	}
	if err := os.RemoveAll(filepath.Join(to, "data", "pg_replslot", standbySlot)); err != nil {
		return err
	}
	// A copy of PG_VERSION has the owner that a file of the server must have.
	signal := filepath.Join(to, "data", "standby.signal")
	if out, err := exec.CommandContext(ctx, "cp", "-a", filepath.Join(to, "data", "PG_VERSION"), signal).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w: %s", err, out)
	}
	return os.Truncate(signal, 0)
}

// waitFor lets the primary wait for the standby as the scenario says, once the standby streams.
func (p *pair) waitFor(ctx context.Context, c scenario) error {
	on := p.a.URL(database)
	err := harness.Until(ctx, limit, "no standby", func(ctx context.Context) (bool, error) {
		return harness.Query[bool](ctx, on, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE application_name = 'b' AND state = 'streaming')")
	})
	if err != nil {
		return err
	}
	var settings []string
	if c.sync {
		settings = append(settings, "ALTER SYSTEM SET synchronous_standby_names = 'b'")
	}
	if c.waits {
		settings = append(settings, "ALTER SYSTEM SET synchronized_standby_slots = '"+standbySlot+"'")
	}
	for _, statement := range append(settings, "SELECT pg_reload_conf()") {
		if err := harness.Execute(ctx, on, statement); err != nil {
			return err
		}
	}
	return p.lead(p.a)
}

// lead leads new connections to a server.
func (p *pair) lead(server *devstack.Postgres) error {
	u, err := url.Parse(server.URL(database))
	if err == nil {
		p.leads.Store(&u.Host)
	}
	return err
}

// pool returns a pool whose connections lead to the primary.
func (p *pair) pool(ctx context.Context, connections int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(p.a.URL(database))
	if err != nil {
		return nil, err
	}
	config.MaxConns = connections
	config.ConnConfig.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
		to := p.leads.Load()
		if to == nil {
			return nil, errors.New("there is no primary")
		}
		c, err := (&net.Dialer{}).DialContext(ctx, network, *to)
		if err == nil {
			p.mu.Lock()
			p.clients = append(p.clients, c)
			p.mu.Unlock()
		}
		return c, err
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// copied waits until the standby has a copy of the relay's slot that a promotion keeps.
func (p *pair) copied(ctx context.Context) error {
	return harness.Until(ctx, limit, "no copy of the slot", func(ctx context.Context) (bool, error) {
		return harness.Query[bool](ctx, p.b.URL(database),
			"SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = '"+slot+"' AND synced AND NOT temporary AND invalidation_reason IS NULL)")
	})
}

// failUnderLoad waits until the pair is ready for a failover and the load has lasted for a while, and lets the primary fail.
func (p *pair) failUnderLoad(ctx context.Context, c scenario, load time.Duration, promoted func(context.Context) error) error {
	if c.copied {
		if err := p.copied(ctx); err != nil {
			return err
		}
	}
	if err := harness.Sleep(ctx, load); err != nil {
		return err
	}
	return p.fail(ctx, c, promoted)
}

// fail kills or freezes the primary, promotes the standby, calls promoted, and leads new connections to the new primary.
func (p *pair) fail(ctx context.Context, c scenario, promoted func(context.Context) error) (err error) {
	if c.behind {
		p.line.cut.Store(true)
		if err := harness.Sleep(ctx, 2*time.Second); err != nil {
			return err
		}
	}
	if c.frozen {
		p.thaw, err = freeze(filepath.Join(p.home, "a"))
	} else {
		err = p.a.Kill()
	}
	if err != nil {
		return err
	}
	p.leads.Store(nil)
	if ok, err := harness.Query[bool](ctx, p.b.URL("postgres"), "SELECT pg_promote()"); err != nil || !ok {
		return errors.Join(errors.New("the standby was not promoted"), err)
	}
	if promoted != nil {
		if err := promoted(ctx); err != nil {
			return err
		}
	}
	return p.lead(p.b)
}

// comeBack ends the silence of the old primary after a while. It still takes itself for the primary, but is fenced: the clients'
// connections to it have been closed, as a proxy closes them at a promotion, and new ones lead to the new primary.
func (p *pair) comeBack(ctx context.Context) error {
	if err := harness.Sleep(ctx, 3*time.Second); err != nil {
		return err
	}
	p.mu.Lock()
	for _, c := range p.clients {
		if c.RemoteAddr().String() != *p.leads.Load() {
			_ = c.Close()
		}
	}
	p.mu.Unlock()
	thaw := p.thaw
	p.thaw = nil
	return thaw()
}

func (p *pair) close() (err error) {
	if p.thaw != nil { // a stopped process does not end
		err = p.thaw()
	}
	for _, server := range []*devstack.Postgres{p.a, p.b} {
		if server != nil {
			err = errors.Join(err, server.Close())
		}
	}
	if p.line != nil {
		_ = p.line.listener.Close()
	}
	return errors.Join(err, os.RemoveAll(p.home))
}
