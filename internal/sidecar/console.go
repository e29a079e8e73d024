package sidecar

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/console"
	"github.com/troupe-go/troupe/schemas"
)

// consolePath is the path of the console on the admin port.
const consolePath = "/console"

// A mounted is a console with its own connection pools: a relay closes its pool when it ends.
type mounted struct {
	http.Handler
	console *console.Console
	pools   []*pgxpool.Pool
}

const consoleConnections = 4 // for each database

var notInName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// newConsole makes the console over the databases of all outboxes, each database once. It connects to nothing. It returns nil if
// the console is disabled.
func newConsole(ctx context.Context, p plan, log zerolog.Logger) (*mounted, error) {
	if !p.console {
		return nil, nil
	}
	m := &mounted{}
	cfg := console.Config{Path: consolePath, Token: p.token, Private: p.token != "", Log: log}
	if p.token == "" { // on loopback, where a page of another site must not reach it by a host name of its own
		cfg.Hosts = []string{"localhost"}
	}
	seen := make(map[string]bool)
	for _, o := range p.outboxes {
		at := o.database.ConnConfig
		place := fmt.Sprint(at.Host, at.Port, at.Database)
		if seen[place] {
			continue
		}
		seen[place] = true
		pooled := o.database.Copy()
		pooled.MaxConns = consoleConnections
		pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), pooled)
		if err != nil {
			m.close()
			return nil, usageError{err}
		}
		m.pools = append(m.pools, pool)
		cfg.Databases = append(cfg.Databases, console.Database{Name: consoleName(o.name), Pool: pool})
		if address := o.given[payloadRegistry.name]; address != "" && cfg.Registry == nil {
			if cfg.Registry, err = schemas.NewRegistry(address); err != nil {
				m.close()
				return nil, usageError{err}
			}
		}
	}
	var err error
	if m.console, err = console.New(ctx, cfg); err != nil {
		m.close()
		return nil, usageError{err}
	}
	m.Handler = m.console
	return m, nil
}

// consoleName returns an outbox's name with only the characters that a path may have, 63 at most.
func consoleName(name string) string {
	name = strings.Trim(notInName.ReplaceAllString(name, "-"), ".-_")
	if name == "" {
		return "outbox"
	}
	return name[:min(len(name), 63)]
}

// close ends the console's requests and jobs, and closes its connections.
func (m *mounted) close() {
	if m == nil {
		return
	}
	if m.console != nil {
		m.console.Close()
	}
	for _, pool := range m.pools {
		pool.Close()
	}
}
