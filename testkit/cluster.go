package testkit

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/migrations"
)

// databasePrefix begins the name of every database that a test run creates: prefix, run, number.
const databasePrefix = "troupe_test_"

// cluster is a server with the databases that this run has created on it. The run holds an advisory lock as long as it lives, so
// that a later run on the same server recognises the databases of a killed one.
type cluster struct {
	*devstack.Postgres
	run    string
	lock   *pgx.Conn
	number atomic.Int64

	templateOnce sync.Once
	template     string
	templateErr  error
}

func openCluster(ctx context.Context) (*cluster, error) {
	p, err := devstack.OpenPostgres(ctx, devstack.PostgresConfig{
		Settings: map[string]string{"fsync": "off", "full_page_writes": "off"},
	})
	if err != nil {
		return nil, err
	}
	c := &cluster{Postgres: p, run: databasePrefix + randomHex(6)}
	if err := c.begin(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *cluster) begin(ctx context.Context) (err error) {
	if c.lock, err = pgx.Connect(ctx, c.URL("")); err != nil {
		return err
	}
	if _, err := c.tryLock(ctx, c.run); err != nil {
		return err
	}
	return c.sweep(ctx)
}

// sweep drops the databases of runs whose lock is free.
func (c *cluster) sweep(ctx context.Context) error {
	rows, err := c.lock.Query(ctx, "SELECT datname FROM pg_database WHERE starts_with(datname, $1)", databasePrefix)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range names {
		run := name[:max(strings.LastIndexByte(name, '_'), 0)]
		dead, err := c.tryLock(ctx, run)
		if err != nil {
			return err
		}
		if !dead {
			continue
		}
		if err := c.DropDatabase(ctx, name); err != nil {
			return err
		}
		if _, err := c.lock.Exec(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", run); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) tryLock(ctx context.Context, run string) (locked bool, err error) {
	err = c.lock.QueryRow(ctx, "SELECT pg_try_advisory_lock(hashtextextended($1, 0))", run).Scan(&locked)
	return locked, err
}

func (c *cluster) nextName() string { return fmt.Sprintf("%s_%d", c.run, c.number.Add(1)) }

// migrated returns the name of a database with Troupe's tables. Tests copy it: this takes 50 ms per test instead of a run of the
// migrations.
func (c *cluster) migrated(ctx context.Context) (string, error) {
	c.templateOnce.Do(func() {
		name := c.nextName()
		address, err := c.CreateDatabase(ctx, name, "")
		if err == nil {
			err = migrations.Up(ctx, address)
		}
		c.template, c.templateErr = name, err
	})
	return c.template, c.templateErr
}

// Close drops the remaining databases of this run, which matters on a server that keeps running.
func (c *cluster) Close() error {
	var errs []error
	if c.template != "" {
		errs = append(errs, c.DropDatabase(context.Background(), c.template))
	}
	if c.lock != nil {
		errs = append(errs, c.lock.Close(context.Background()))
	}
	return errors.Join(append(errs, c.Postgres.Close())...)
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
