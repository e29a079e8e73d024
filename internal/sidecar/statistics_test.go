package sidecar

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/testkit"
)

// The figures are stored for later requests and for /metrics.
func TestFiguresDoNotEndWithTheClientThatAskedForThem(t *testing.T) {
	t.Parallel()
	s := &statistics{pool: testkit.Database(t), of: desk.Table{}}
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, err := s.read(gone)
	require.NoError(t, err)
	rows, err := s.read(t.Context())
	require.NoError(t, err)
	require.Positive(t, rows.Headroom)
}
