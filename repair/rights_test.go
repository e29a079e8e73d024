package repair_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/repair"
)

// as is a desk of a role with these rights, in which "operator" stands for the role.
func (s *stage) as(grants ...string) *repair.Desk {
	s.t.Helper()
	role := pgx.Identifier{"troupe_test_" + strings.ReplaceAll(uuid.NewString(), "-", "")}.Sanitize()
	s.exec("CREATE ROLE " + role)
	s.t.Cleanup(func() {
		_, err := s.pool.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role)
		require.NoError(s.t, err)
	})
	for _, g := range grants {
		s.exec(strings.ReplaceAll(g, "TO operator", "TO "+role))
	}
	config := s.pool.Config()
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SET ROLE "+role)
		return err
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(s.t, err)
	s.t.Cleanup(pool.Close)
	desk, err := repair.New(repair.Config{Pool: pool})
	require.NoError(s.t, err)
	return desk
}

// TestTheDocumentedRightsSuffice takes them from the page.
func TestTheDocumentedRightsSuffice(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/dead-letters.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```sql\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, block)
	grants := regexp.MustCompile(`(?s)GRANT.*?;`).FindAllString(string(block[1]), -1)
	require.Len(t, grants, 9)

	s, _ := waiting(t)
	s.fails("x", "no", true)
	s.fails("y", "no", true)
	stop := s.participant(patient)
	s.send(s.command("x", Charge{N: 1}), s.command("y", Charge{N: 2}))
	s.waitCount(2, openLetters)
	stop()
	x, y := s.letters()[0].ID, s.letters()[1].ID
	place := s.held("a").Place

	reader := s.as(grants[:2]...)
	_, _, err = reader.Causes(t.Context(), repair.Filter{}, repair.Page{})
	require.NoError(t, err)
	_, err = reader.Show(t.Context(), x)
	require.NoError(t, err)
	_, err = reader.Find(t.Context(), x.String())
	require.NoError(t, err)
	_, _, err = reader.Held(t.Context(), repair.HeldFilter{}, repair.Page{})
	require.NoError(t, err)
	_, err = reader.Discard(t.Context(), repair.Filter{}, ann)
	require.ErrorContains(t, err, "docs/dead-letters.md")
	require.Equal(t, 2, s.count(openLetters))

	operator := s.as(grants...)
	require.NoError(t, operator.Edit(t.Context(), x, []byte(`{"n":1}`), ann))
	r, err := operator.Redrive(t.Context(), repair.Filter{IDs: []uuid.UUID{x}}, quickly)
	require.NoError(t, err)
	require.Equal(t, 1, r.Redriven)
	_, err = operator.Discard(t.Context(), repair.Filter{IDs: []uuid.UUID{y}}, ann)
	require.NoError(t, err)
	n, err := operator.Retry(t.Context(), repair.HeldFilter{}, ann)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	_, err = operator.Release(t.Context(), place, repair.ReleaseConfig{By: ann})
	require.NoError(t, err)
	l, err := operator.Show(t.Context(), x)
	require.NoError(t, err)
	require.Equal(t, "ann", l.History[0].Actor)
}
