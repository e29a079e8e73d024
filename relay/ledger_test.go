package relay

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// A beforeStatement calls do once, before the first statement with the text sql.
type beforeStatement struct {
	sql string
	do  func()
}

func (b *beforeStatement) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if do := b.do; do != nil && q.SQL == b.sql {
		b.do = nil
		do()
	}
	return ctx
}

func (*beforeStatement) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A row that waits may become visible to other sessions between the statements of one look for due rows. The next look finds it,
// although no row is recorded and nothing blocks or frees a key in between.
func TestARowThatBecomesVisibleDuringALookIsFoundByTheNext(t *testing.T) {
	t.Parallel()
	pool, l := tenure(t)
	exec := func(sql string) {
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	exec(`INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, attempts, max_attempts, last_error)
		SELECT position, troupe.uuidv7(), 't', 'k', 'waiting', 0, 0, '' FROM (VALUES (5), (7)) AS v (position)`)
	appears := &beforeStatement{sql: firstUnblocked, do: func() {
		exec(`INSERT INTO troupe.outbox (position, id, topic, key, type) OVERRIDING SYSTEM VALUE
			SELECT position, id, topic, 'k', 'T' FROM troupe.outbox_failures WHERE position = 5`)
	}}
	config := pool.Config()
	config.ConnConfig.Tracer = appears
	traced, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(traced.Close)
	db, err := bindNow(t.Context(), traced)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	led := ledger{db: db, lease: l}
	require.NoError(t, led.load(t.Context()))
	items, err := led.due(t.Context())
	require.NoError(t, err)
	require.Empty(t, items)
	require.Nil(t, appears.do, "the row is visible now")
	items, err = led.due(t.Context())
	require.NoError(t, err)
	require.Len(t, items, 1)
}
