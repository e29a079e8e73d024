package participant_test

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/participant"
)

// TestALocalMemberRemovesClosedRecords if its role owns the tables: a flow on Postgres alone has no relay that does.
func TestALocalMemberRemovesClosedRecords(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	_, err := s.pool.Exec(t.Context(), `
		INSERT INTO troupe.sagas (id, saga, key, hop, consumer_group, definition, version, status, steps, state, started_at, ended_at)
		VALUES ('order/o-1', 'order', 'o-1', 'shop.order', 'shop.order', 'd', 1, 'completed', '', '{"steps": []}', now() - interval '91 days',
		        now() - interval '91 days')`)
	require.NoError(t, err)

	var log safeBuffer
	role := grantstest.New(t, s.pool, grants.LocalWork).Pool()
	p := s.new(func(c *participant.Config) { c.Pool, c.Log = role, zerolog.New(&log) })
	participant.Handle(p, count)
	stop := s.start(p)
	waitFor(t, "a log line", func() bool { return strings.Contains(log.String(), "this participant removes no closed records") })
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.sagas"))
	stop()

	p = s.new()
	participant.Handle(p, count)
	s.start(p)
	s.waitCount(0, "SELECT count(*) FROM troupe.sagas")
}
