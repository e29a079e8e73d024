package console

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/rebuilds"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/schedule"
)

// TestAnyNumberOfRecordsOfAnOperatorFillsNoMemory: an operator's role may write any number of records, each of up to the limit of its size.
func TestAnyNumberOfRecordsOfAnOperatorFillsNoMemory(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	role := grantstest.New(t, d.Pool, grants.Operator).Pool()
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := role.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	get := func(page, accept string) string {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, page, nil)
		r.Header.Set("Accept", accept)
		d.c.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code)
		return w.Body.String()
	}

	t.Run("changes of a rebuild", func(t *testing.T) {
		exec(`INSERT INTO troupe.rebuilds (consumer_group, generation, handlers, from_time, emit) VALUES ('changed', 1, '{a}', '2026-01-01', false)`)
		exec(`INSERT INTO troupe.rebuild_changes (actor, action, reason, rebuild, change)
			SELECT repeat('a', 500000), 'start', repeat('r', 500000), (SELECT max(id) FROM troupe.rebuilds), repeat('c', 1000000) FROM generate_series(1, 30)`)
		desk := rebuilds.Desk{Pool: d.Pool}
		list, _, err := desk.List(t.Context())
		require.NoError(t, err)
		_, _, changes, err := desk.Show(t.Context(), list[0].ID)
		require.NoError(t, err)
		require.Len(t, changes, 20)
		require.Equal(t, []int{200, 2000, 2000}, []int{len(changes[0].Actor), len(changes[0].Reason), len(changes[0].Change)})
	})

	t.Run("rebuilds with long names", func(t *testing.T) {
		exec(`INSERT INTO troupe.rebuilds (consumer_group, generation, handlers, from_time, emit)
			SELECT 'long-' || n, 1, array_fill(repeat('h', 1000), ARRAY[1000]), '2026-01-01', false FROM generate_series(1, 100) AS n`)
		list, more, err := rebuilds.Desk{Pool: d.Pool}.List(t.Context())
		require.NoError(t, err)
		require.True(t, more)
		require.Less(t, len(list), 50)
		require.Equal(t, []int{100, 500}, []int{len(list[0].Handlers), len(list[0].Handlers[0])})
		one, _, _, err := rebuilds.Desk{Pool: d.Pool}.Show(t.Context(), list[0].ID)
		require.NoError(t, err)
		require.Len(t, one.Handlers, 1000)
		require.Contains(t, get("/rebuilds", "text/html"), "Older rebuilds are not shown.")
		require.Less(t, len(get("/rebuilds", "application/json")), 4_000_000)
	})

	t.Run("partitions of rebuilds", func(t *testing.T) {
		exec(`INSERT INTO troupe.rebuilds (consumer_group, generation, handlers, from_time, emit)
			SELECT 'wide-' || n, 1, '{a}', '2026-01-01', false FROM generate_series(1, 20) AS n`)
		exec(`INSERT INTO troupe.rebuild_partitions (rebuild, topic, partition, topic_id, handlers, from_offset)
			SELECT id, repeat('t', 2000), n, gen_random_uuid(), '{a}', 0 FROM troupe.rebuilds, generate_series(1, 900) AS n WHERE consumer_group LIKE 'wide-%'`)
		body := get("/rebuilds", "text/html")
		require.Equal(t, openShown, strings.Count(body, `<th scope="row"><a href="/held`))
		require.Contains(t, body, "Partitions that are not shown: 700.")
		require.NotContains(t, body, strings.Repeat("t", 250))
	})

	t.Run("history of a dead letter", func(t *testing.T) {
		d.letters()
		var id uuid.UUID
		require.NoError(t, d.Pool.QueryRow(t.Context(), "SELECT id FROM troupe.dead_letters LIMIT 1").Scan((*[16]byte)(&id)))
		exec(`INSERT INTO troupe.repairs (actor, action, reason, dead_letter_id, consumer_group, topic, partition, "offset", message_id)
			SELECT n || repeat('a', 50000), 'redrive', repeat('r', 50000), $1, 'g', 't', 0, 0, 'm' FROM generate_series(1, 120) AS n`, id)
		desk, err := repair.New(repair.Config{Pool: d.Pool})
		require.NoError(t, err)
		l, err := desk.Show(t.Context(), id)
		require.NoError(t, err)
		require.True(t, l.Earlier)
		require.Len(t, l.History, 100)
		require.Equal(t, "21"+strings.Repeat("a", 198), l.History[0].Actor)
		require.Len(t, l.History[0].Reason, 2000)
		require.Contains(t, get("/dead-letter?db=order&id="+id.String(), "text/html"), "Earlier actions are not shown.")
	})

	t.Run("records of skipped batches", func(t *testing.T) {
		_, err := d.Pool.Exec(t.Context(), `INSERT INTO troupe.unreadable_batches (consumer_group, topic, partition, topic_id, "offset", next_offset, bytes, skipped_at)
			VALUES ('g', 't', 0, '00000000-0000-0000-0000-000000000001', 0, 1, 1, now())`)
		require.NoError(t, err)
		exec(`INSERT INTO troupe.repairs (actor, action, reason, consumer_group, topic, partition, "offset", message_id)
			VALUES (repeat('a', 50000), 'skip', repeat('r', 50000), 'g', 't', 0, 0, '00000000-0000-0000-0000-000000000001/0/0')`)
		desk, err := repair.New(repair.Config{Pool: d.Pool})
		require.NoError(t, err)
		batches, err := desk.Batches(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, []int{200, 2000}, []int{len(batches[0].Actor), len(batches[0].Reason)})
	})

	t.Run("schedules", func(t *testing.T) {
		_, err := grantstest.New(t, d.Pool, grants.SagaOperator).Pool().Exec(t.Context(), `
			INSERT INTO troupe.schedules (name, cron, zone, topic, type, next_at, data)
			SELECT 's-' || n, '@daily', 'UTC', 't', 'T', now(), jsonb_build_object('a', repeat('x', 100000)) FROM generate_series(1, 1010) AS n`)
		require.NoError(t, err)
		list, err := schedule.Desk{Pool: d.Pool}.List(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 1000)
		require.Nil(t, list[0].Data)
	})

	t.Run("definitions and variables of sagas", func(t *testing.T) {
		sagas := grantstest.New(t, d.Pool, grants.SagaOperator).Pool()
		_, err := sagas.Exec(t.Context(), `
			INSERT INTO troupe.saga_definitions (hash, saga, version, definition) SELECT 'h-' || n, 'many', 1, '{}' FROM generate_series(1, 10010) AS n`)
		require.NoError(t, err)
		_, err = d.Pool.Exec(t.Context(), `
			INSERT INTO troupe.saga_stash (saga, variable, value, message_id, event, expires_at)
			SELECT 'many', 'v-' || n, 'v', 'm', '{}', now() + interval '1 hour' FROM generate_series(1, 10010) AS n`)
		require.NoError(t, err)
		desk, err := sagadesk.New(sagadesk.Config{Pool: d.Pool})
		require.NoError(t, err)
		uses, err := desk.Definitions(t.Context())
		require.NoError(t, err)
		require.Len(t, uses, 10_000)
		variables, err := desk.Stash(t.Context())
		require.NoError(t, err)
		require.Len(t, variables, 10_000)
	})
}
