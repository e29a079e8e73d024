package participant_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// TestTheGrantsOfThePackageCommentAreEnough runs a participant with no other rights than those.
func TestTheGrantsOfThePackageCommentAreEnough(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	role := "service_" + strings.ReplaceAll(s.pool.Config().ConnConfig.Database, "-", "_")
	source, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	text := strings.ReplaceAll(string(source), "\n//", "\n")
	grants := regexp.MustCompile(`(?s)GRANT [^;]*;`).FindAllString(text, -1)
	require.Len(t, grants, 7)
	var ring []string
	for slot := range 32 {
		ring = append(ring, fmt.Sprintf("troupe.inbox_recent_%d", slot))
	}
	grants[3] = "GRANT TRUNCATE ON " + strings.Join(ring, ", ") + " TO service"
	_, err = s.pool.Exec(t.Context(), "CREATE ROLE "+role+"; GRANT ALL ON counters, done TO "+role)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := s.pool.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role)
		require.NoError(t, err)
	})
	for _, sql := range grants {
		_, err := s.pool.Exec(t.Context(), strings.Replace(strings.TrimSuffix(sql, ";"), "TO service", "TO "+role, 1))
		require.NoError(t, err, sql)
	}
	config, err := pgxpool.ParseConfig(s.pool.Config().ConnString())
	require.NoError(t, err)
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SET ROLE "+role)
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)

	p := s.new(func(c *participant.Config) { c.Pool, c.Batch = pool, 10 })
	for days := range 3 { // the ring comes round
		_, err := p.Turn(time.Now().Add(time.Duration(40*(2-days)) * -24 * time.Hour))
		require.NoError(t, err)
	}
	require.NoError(t, p.PruneInbox())
	participant.Handle(p, count)
	stop := s.start(p)
	s.send(s.command("a", Count{N: 1}), s.command("b", Count{N: 1, Fail: "error"}), s.command("b", Count{N: 2}), s.command("c", Count{Fail: "permanent"}))
	s.waitCount(2, "SELECT count(*) FROM troupe.dead_letters")
	s.waitCount(2, "SELECT count(*) FROM done")
	s.waitCount(2, "SELECT count(*) FROM troupe.leases WHERE released_at IS NULL") // of the partition without a message too
	stop()
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.leases WHERE released_at IS NOT NULL"))
	_, err = pool.Exec(t.Context(), "SELECT FROM troupe.outbox")
	require.ErrorContains(t, err, "permission denied")
}
