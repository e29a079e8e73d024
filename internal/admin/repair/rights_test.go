package repair_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
)

// as returns a desk that has the rights of part and no others.
func (s *stage) as(part grants.Part) *repair.Desk {
	s.t.Helper()
	desk, err := repair.New(repair.Config{Pool: grantstest.New(s.t, s.pool, part).Pool()})
	require.NoError(s.t, err)
	return desk
}

// TestAViewerReadsAndAnOperatorRepairs uses roles that have only the rights of these parts.
func TestAViewerReadsAndAnOperatorRepairs(t *testing.T) {
	t.Parallel()
	s, _ := waiting(t)
	s.fails("x", "no", true)
	s.fails("y", "no", true)
	stop := s.participant(patient)
	s.send(s.command("x", Charge{N: 1}), s.command("y", Charge{N: 2}))
	s.waitCount(2, openLetters)
	stop()
	x, y := s.letters()[0].ID, s.letters()[1].ID
	place := s.held("a").Place

	reader := s.as(grants.Viewer)
	_, _, err := reader.Causes(t.Context(), repair.Filter{}, repair.Page{})
	require.NoError(t, err)
	_, err = reader.Show(t.Context(), x)
	require.NoError(t, err)
	_, _, err = reader.Find(t.Context(), x.String())
	require.NoError(t, err)
	_, _, err = reader.Held(t.Context(), repair.HeldFilter{}, repair.Page{})
	require.NoError(t, err)
	_, err = reader.Discard(t.Context(), repair.Filter{}, ann)
	require.ErrorContains(t, err, "docs/dead-letters.md")
	require.Equal(t, 2, s.count(openLetters))

	operator := s.as(grants.Operator)
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
