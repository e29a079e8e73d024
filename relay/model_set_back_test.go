//go:build unix

package relay_test

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/migrations"
)

// An image is a copy of the database, with the number of rows that it has of each key.
type image struct {
	name      string
	committed map[int]int
	deleted   map[string]bool
}

// takeImage copies the database. Nothing may be connected to it meanwhile.
func (h *history) takeImage() {
	h.commitOpen()
	if h.image != nil {
		require.NoError(h.rt, h.model.server.DropDatabase(context.Background(), h.image.name))
	}
	h.image = &image{h.database + "_image", maps.Clone(h.committed), maps.Clone(h.deleted)}
	h.alone(func() { h.copyDatabase(h.database, h.image.name) })
}

// setBack replaces the database by its image. Rows that were committed since are lost; they may have been published.
func (h *history) setBack() {
	if h.image == nil {
		return
	}
	h.healed = true
	for key, w := range h.open {
		h.endTx(w, key, "ROLLBACK")
		delete(h.open, key)
	}
	for key, n := range h.committed {
		for i := h.image.committed[key]; i < n; i++ {
			h.lost[fmt.Sprintf("%d-%d", key, i)] = true
		}
	}
	h.alone(func() {
		require.NoError(h.rt, h.model.server.DropDatabase(context.Background(), h.database))
		h.copyDatabase(h.image.name, h.database)
		h.applySettings()
	})
	h.deleted = maps.Clone(h.image.deleted)
	h.loseDeleted()
}

// alone calls do while no session is connected to the database.
func (h *history) alone(do func()) {
	h.pool.Reset()
	h.onServer(fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS false", h.database))
	h.await("the sessions to end", func() (bool, error) {
		var left int
		err := h.admin.QueryRow(context.Background(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = $1`,
			h.database).Scan(&left)
		return left == 0, err
	})
	do()
	h.onServer(fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS true", h.database))
}

// copyDatabase makes a copy of a database. The relay tries to connect all the time, and each refused attempt uses the database for a moment. If
// Postgres finds one in each of its looks for 5 s, the database is in use: then copyDatabase waits on.
func (h *history) copyDatabase(from, to string) {
	h.await("no session to use "+from, func() (bool, error) {
		_, err := h.admin.Exec(context.Background(), fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s", to, from))
		var refused *pgconn.PgError
		if err == nil || errors.As(err, &refused) && refused.Code == "55006" { // object_in_use
			return err == nil, err
		}
		require.NoError(h.rt, err)
		return false, err
	})
}

func (h *history) onServer(sql string) {
	_, err := h.admin.Exec(context.Background(), sql)
	if err != nil {
		h.t.Log(sql, err) // rapid does not print the error of a history that it cannot repeat
	}
	require.NoError(h.rt, err, sql)
}

func (h *history) applySettings() {
	for _, setting := range sortedKeys(h.plan.Settings) {
		h.onServer(fmt.Sprintf("ALTER ROLE %s IN DATABASE %s SET %s = '%s'", h.role, h.database, setting, h.plan.Settings[setting]))
	}
}

// makeOther makes another database whose outbox the same process publishes.
func (h *history) makeOther() {
	name := h.database + "_other"
	h.onServer("CREATE DATABASE " + name)
	require.NoError(h.rt, migrations.Up(context.Background(), h.model.server.URL(name)))
	h.other = &stage{t: h.t, pool: modelPool(h.t, h.model.server.URL(name)), brokers: h.brokers, topic: h.topic + ".other"}
	h.provision(kafka.Topic{Name: h.other.topic, Partitions: 1})
	h.grantTo(h.other)
}

func (h *history) writeOther() {
	if h.other != nil {
		h.other.insert(h.other.topic, "other", fmt.Sprint(h.others))
		h.others++
	}
}

// judgeOther waits until all rows of the other database are published, and fails the history if they are not in order.
func (h *history) judgeOther() {
	if h.other == nil {
		return
	}
	read := func() (first []string) {
		for _, r := range firstCopies(h.publishedOn(h.other.topic)) {
			first = append(first, string(r.Value))
		}
		return first
	}
	h.await("the rows of the other database", func() (bool, error) { return len(read()) >= h.others, nil })
	for n, text := range read() {
		require.Equal(h.rt, fmt.Sprint(n), text, "the rows of the other database")
	}
}

// drop removes the databases that the steps made.
func (h *history) drop() {
	ctx := context.Background()
	if h.other != nil {
		h.other.pool.Close()
		require.NoError(h.t, h.model.server.DropDatabase(ctx, h.database+"_other"))
	}
	if h.image != nil {
		require.NoError(h.t, h.model.server.DropDatabase(ctx, h.image.name))
	}
	require.NoError(h.t, h.model.server.DropDatabase(ctx, h.database))
}
