package flow_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

func TestEveryStatementFitsTheTables(t *testing.T) {
	t.Parallel()
	conn, err := testkit.Database(t).Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	files, err := filepath.Glob("sql/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		sql, err := os.ReadFile(file)
		require.NoError(t, err)
		text, _, err := pgx.NamedArgs{}.RewriteQuery(t.Context(), conn.Conn(), string(sql), nil)
		require.NoError(t, err)
		_, err = conn.Conn().Prepare(t.Context(), "", text)
		require.NoError(t, err, file)
	}
}

// TestEndedRowsAreDeletedAfterTheirRetention checks that each join that begins deletes two rows whose retention has passed, and that open ones are
// kept.
func TestEndedRowsAreDeletedAfterTheirRetention(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, shippingStage(t, func(c *testkit.StageConfig) {
		c.Handlers = func(s *testkit.Stage, p *participant.Participant) {
			service, err := flow.New(flow.Config{Participant: p, Declared: shipping(s.Hop.Flow()), Retention: time.Hour})
			require.NoError(t, err)
			flow.OnJoin(service, "ready", flow.Ends{Complete: ship, Expired: tooLate})
		}
	}))
	_, err := s.Pool.Exec(t.Context(), `
		INSERT INTO troupe.joins (consumer_group, name, key, status, arrived, ended_at, forget_at)
		SELECT $1, 'ready', 'old-' || n, 'complete', '{}'::text[], now(), now() - make_interval(secs => 10 - n) FROM generate_series(1, 5) AS n
		UNION ALL SELECT $1, 'ready', 'fresh', 'complete', '{}'::text[], now(), now() + make_interval(secs => 3600)
		UNION ALL SELECT $1, 'ready', 'open', 'open', '{}'::text[], NULL, NULL`, s.Hop.String())
	require.NoError(t, err)
	old := "SELECT count(*) FROM troupe.joins WHERE key LIKE 'old-%'"
	for _, left := range []int{3, 1, 0} {
		key := strings.Repeat("k", left+1)
		s.Send(event(s, "payment", key, Paid{1}))
		s.Settle()
		require.Equal(t, left, count(t, s, old))
		s.Send(event(s, "inventory", key, Reserved{1}))
		s.Settle()
		require.Equal(t, left, count(t, s, old), "one that goes on takes none along")
	}
	require.Equal(t, 3+2, count(t, s, "SELECT count(*) FROM troupe.joins"))
	require.Equal(t, 3, count(t, s, "SELECT count(*) FROM troupe.joins WHERE key LIKE 'k%' AND forget_at = ended_at + interval '1 hour'"))
}

// TestJoinsAndExpectationsWorkWithNoMoreThanTheirGrants runs each statement of the package with a role that has only these
// grants.
func TestJoinsAndExpectationsWorkWithNoMoreThanTheirGrants(t *testing.T) {
	t.Parallel()
	conn := grantstest.New(t, testkit.Database(t), grants.Flow).Pool()
	args := pgx.NamedArgs{
		"group": "g", "name": "n", "key": "k", "part": "t T", "awaited": []string{"t T", "u U"}, "retention": 1.0,
		"headers": []byte{}, "payload": []byte(nil), "within": 1.0, "alert_id": uuid.New(), "alerts": true, "limit": 10, "lease": 1.0, "wait": 1.0,
		"names": []string{"n"}, "keys": []string{"k"}, "came": []bool{false},
	}
	files, err := filepath.Glob("sql/*.sql")
	require.NoError(t, err)
	for _, file := range files {
		sql, err := os.ReadFile(file)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), string(sql), args)
		require.NoError(t, err, file)
	}
}
