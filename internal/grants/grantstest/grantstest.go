// Package grantstest creates roles with exactly the documented rights of a part, for tests that run the part as such a role.
package grantstest

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
)

// A Role can log in to the database of the pool that it was created with. Cleanup drops it.
type Role struct {
	Name string
	t    testing.TB
	at   *pgxpool.Pool
}

const password = "of-a-test"

// New creates a role with the rights of parts, and of the parts that they include.
func New(t testing.TB, pool *pgxpool.Pool, parts ...grants.Part) Role {
	t.Helper()
	r := Role{"troupe_test_" + strings.ReplaceAll(uuid.NewString(), "-", ""), t, pool}
	r.exec("CREATE ROLE " + r.Name + " LOGIN PASSWORD '" + password + "'")
	t.Cleanup(func() {
		_, err := pool.Exec(context.Background(), "DROP OWNED BY "+r.Name+"; DROP ROLE "+r.Name)
		require.NoError(t, err)
	})
	r.exec(grants.Usage(r.Name))
	for _, part := range parts {
		for _, p := range []grants.Part{part.Includes(), part} {
			for _, g := range grants.Of(p) {
				r.exec(g.To(r.Name))
			}
		}
	}
	return r
}

func (r Role) exec(sql string) {
	r.t.Helper()
	_, err := r.at.Exec(context.Background(), sql)
	require.NoError(r.t, err, sql)
}

// URL returns the address of the database as the role.
func (r Role) URL() string {
	r.t.Helper()
	address, err := url.Parse(r.at.Config().ConnString())
	require.NoError(r.t, err)
	address.User = url.UserPassword(r.Name, password)
	return address.String()
}

// Pool returns a pool of connections as the role. Cleanup closes it.
func (r Role) Pool() *pgxpool.Pool {
	r.t.Helper()
	config := r.at.Config()
	config.ConnConfig.User, config.ConnConfig.Password = r.Name, password
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(r.t, err)
	r.t.Cleanup(pool.Close)
	return pool
}
