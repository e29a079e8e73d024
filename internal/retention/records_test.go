package retention_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/pgtext"
	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/testkit"
)

// archive is a database with closed records.
type archive struct {
	*testing.T
	pool *pgxpool.Pool
}

func newArchive(t *testing.T) archive { return archive{t, testkit.Database(t)} }

func (a archive) exec(sql string, args ...any) {
	a.Helper()
	_, err := a.pool.Exec(a.Context(), sql, args...)
	require.NoError(a, err, sql)
}

func (a archive) list(sql string, args ...any) []string {
	a.Helper()
	rows, err := a.pool.Query(a.Context(), sql, args...)
	require.NoError(a, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(a, err)
	return all
}

func (a archive) remove() retention.Removed {
	a.Helper()
	removed, err := retention.NewRecords(a.pool).Remove(a.Context())
	require.NoError(a, err)
	return removed
}

// saga inserts a saga of two steps with a log of three entries. ended is how long ago it ended, as an interval; "": it runs.
func (a archive) saga(key, status, ended string) {
	a.Helper()
	a.exec(`
		INSERT INTO troupe.sagas (id, saga, key, hop, consumer_group, definition, version, status, steps, state, started_at, ended_at)
		SELECT 'order/' || $1, 'order', $1, 'shop.order', 'shop.order', 'd', 3, $2, '', '{"steps": [{"name": "payment"}, {"name": "shipping"}]}',
		       coalesce(now() - nullif($3, '')::interval, now()) - interval '100 days', now() - nullif($3, '')::interval`, key, status, ended)
	a.exec(`
		INSERT INTO troupe.saga_events (saga_id, version, at, kind, event, moments, recorded_at)
		SELECT 'order/' || $1, version, now(), 'started', '{}', '[]', now() - coalesce(nullif($2, ''), '0')::interval
		FROM generate_series(1, 3) AS version`, key, ended)
}

const (
	ids  = "SELECT id FROM troupe.sagas ORDER BY id"
	logs = "SELECT DISTINCT saga_id FROM troupe.saga_events ORDER BY 1"
)

// TestEndedSagasAreRemovedWithTheirLogs after the time that the owner has set, and no others.
func TestEndedSagasAreRemovedWithTheirLogs(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.saga("completed", "completed", "91 days")
	a.saga("compensated", "compensated", "91 days")
	a.saga("abandoned", "abandoned", "91 days")
	a.saga("recent", "completed", "89 days") // it started 189 days ago
	a.saga("running", "running", "")
	a.saga("parked", "parked", "")
	require.EqualValues(t, 3, a.remove()[retention.Sagas])
	left := []string{"order/parked", "order/recent", "order/running"}
	require.Equal(t, left, a.list(ids))
	require.Equal(t, left, a.list(logs))
	require.Equal(t, []string{"3 true"}, a.list(
		"SELECT removed || ' ' || (passed_at > now() - interval '1 hour') FROM troupe.retention WHERE kind = 'sagas'"))

	a.exec("UPDATE troupe.retention SET keep = '30 days' WHERE kind = 'sagas'")
	require.EqualValues(t, 1, a.remove()[retention.Sagas])
	require.Equal(t, []string{"order/parked", "order/running"}, a.list(ids))
}

// TestRecordsAreKeptForEverIfTheOwnerSaysSo by a null in troupe.retention. Less than a day is refused.
func TestRecordsAreKeptForEverIfTheOwnerSaysSo(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.saga("old", "completed", "9000 days")
	a.exec("UPDATE troupe.retention SET keep = NULL")
	require.Empty(t, a.remove())
	require.Len(t, a.list(ids), 1)
	_, err := a.pool.Exec(t.Context(), "UPDATE troupe.retention SET keep = '23 hours'")
	require.ErrorContains(t, err, "retention_keep_check")
}

// A role that may write sagas may write any JSON as a saga's state. Such a saga is removed as any other, and keeps no other.
func TestASagaWithAnyStateIsRemovedAsAnyOther(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	for i, state := range []string{"1", "null", "[]", `"x"`, "{}", `{"steps": 1}`, `{"steps": {}}`, `{"steps": null}`, `{"steps": "payment"}`, `{"steps": [1, null, [], {"name": []}]}`} {
		key := fmt.Sprint("odd-", i)
		a.saga(key, "completed", "91 days")
		a.exec("UPDATE troupe.sagas SET state = $2 WHERE key = $1", key, state)
	}
	a.saga("other", "completed", "91 days")
	a.exec(`INSERT INTO troupe.answers (consumer_group, message_type, idempotency_key, outcome, type, content_type)
		VALUES ('shop.payment', 'forward payment', 'order/none', 'success', 'PaymentCharged', 'application/json')`)
	require.EqualValues(t, 11, a.remove()[retention.Sagas])
}

// TestASagaOnWhichAnotherPartDependsIsKept as long as that is so: each row of the table lets one more part depend on it.
func TestASagaOnWhichAnotherPartDependsIsKept(t *testing.T) {
	t.Parallel()
	const letter = `INSERT INTO troupe.dead_letters (consumer_group, handler, error_class, error, attempts, topic, topic_id, partition, "offset",
		key, headers, message_id, message_type, correlation_id, first_failed_at, last_failed_at)
		VALUES ('shop.order', 'h', 'permanent', 'e', 1, 't', gen_random_uuid(), 0, 0, convert_to('%s', 'UTF8'), '', 'm', 'T', 'c', now(), now())`
	const deadline = `INSERT INTO troupe.deadlines (consumer_group, scope, name, id, due_at, key, type, headers, fired_at)
		VALUES ('shop.order', '%s', '%s', gen_random_uuid(), now(), 'order/o-1', 'T', '{}', now())`
	const answer = `INSERT INTO troupe.answers (consumer_group, message_type, idempotency_key, outcome, type, content_type, command_key, answered_at)
		VALUES ('shop.payment', '%s', 'order/o-1', 'success', 'T', 'j', 'k', now() - interval '80 days')`
	for name, uses := range map[string]string{
		"it has a lock":                          "INSERT INTO troupe.saga_locks (name, saga_id) VALUES ('order/c-1', 'order/o-1')",
		"an event of its key is stashed":         "INSERT INTO troupe.saga_stash (saga, variable, value, message_id, event, expires_at) VALUES ('order', '', 'o-1', 'm', '{}', now() + interval '1 hour')",
		"its wake-up is on its way":              fmt.Sprintf(deadline, "order/o-1", "saga"),
		"an event is tried again for it":         fmt.Sprintf(deadline, "order/o-1/0a1b", "retry-event"),
		"an answer to it is an open dead letter": fmt.Sprintf(letter, "o-1"),
		"an event for it is an open dead letter": fmt.Sprintf(letter, "order/o-1"),
		"the answer of a step is stored":         fmt.Sprintf(answer, "forward payment"),
		"the answer of a compensation is stored": fmt.Sprintf(answer, "compensate shipping"),
		"a call of a step is marked":             fmt.Sprintf(answer, "begun shipping"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.saga("o-1", "completed", "91 days")
			a.saga("o-2", "completed", "91 days")
			a.exec(uses)
			require.EqualValues(t, 1, a.remove()[retention.Sagas])
			require.Equal(t, []string{"order/o-1"}, a.list(ids))
			require.Equal(t, []string{"order/o-1"}, a.list(logs))
			for _, table := range []string{"saga_locks", "saga_stash", "deadlines", "dead_letters", "answers"} {
				a.exec("DELETE FROM troupe." + table)
			}
			a.remove()
			require.Empty(t, a.list(ids))
		})
	}
}

// TestASagaWithALongKeyIsKeptForWhatIsStoredByAHashOfItsID: the answers of its steps, and its wake-ups.
func TestASagaWithALongKeyIsKeptForWhatIsStoredByAHashOfItsID(t *testing.T) {
	t.Parallel()
	for table, insert := range map[string]string{
		"answers": `INSERT INTO troupe.answers (consumer_group, message_type, idempotency_key, outcome, type, content_type, command_key)
			VALUES ('shop.payment', 'forward payment', $1, 'success', 'T', 'j', 'k')`,
		"deadlines": `INSERT INTO troupe.deadlines (consumer_group, scope, name, id, due_at, key, type, headers, fired_at)
			VALUES ('shop.order', $1, 'saga', gen_random_uuid(), now(), 'k', 'T', '{}', now())`,
	} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			key := strings.Repeat("ä", 200)
			a.saga(key, "completed", "91 days")
			a.exec(insert, pgtext.Indexable("order/"+key))
			a.remove()
			require.Len(t, a.list(ids), 1)
			a.exec("DELETE FROM troupe." + table)
			a.remove()
			require.Empty(t, a.list(ids))
		})
	}
}

// TestASagaWithALongKeyIsKeptInAnyEncoding: the limit of a stored text counts bytes of UTF-8, whatever the database's encoding is.
func TestASagaWithALongKeyIsKeptInAnyEncoding(t *testing.T) {
	t.Parallel()
	server := newArchive(t)
	config := server.pool.Config()
	name := config.ConnConfig.Database + "_latin"
	server.exec("CREATE DATABASE " + name + " ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	config.ConnConfig.Database = name
	require.NoError(t, migrations.UpConfig(t.Context(), config.ConnConfig))
	given, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	pool, err := pg.SessionPool(given) // with text in UTF-8, as a relay's
	require.NoError(t, err)
	t.Cleanup(func() {
		pool.Close()
		given.Close()
		_, err := server.pool.Exec(context.Background(), "DROP DATABASE "+name)
		require.NoError(t, err)
	})
	a := archive{t, pool}
	key := strings.Repeat("ä", 150)
	a.saga(key, "completed", "91 days")
	a.exec(`INSERT INTO troupe.answers (consumer_group, message_type, idempotency_key, outcome, type, content_type, command_key)
		VALUES ('shop.payment', 'forward payment', $1, 'success', 'T', 'j', 'k')`, pgtext.Indexable("order/"+key))
	a.remove()
	require.Len(t, a.list(ids), 1)
}

// TestASagaThatATransactionHasLockedIsPassedOver: the pass does not wait for it, and does not keep others waiting.
func TestASagaThatATransactionHasLockedIsPassedOver(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.saga("o-1", "completed", "91 days")
	a.saga("o-2", "completed", "91 days")
	tx, err := a.pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	_, err = tx.Exec(t.Context(), "SELECT FROM troupe.sagas WHERE id = 'order/o-1' FOR UPDATE")
	require.NoError(t, err)
	a.remove()
	require.Equal(t, []string{"order/o-1"}, a.list(ids))
	require.NoError(t, tx.Commit(t.Context()))
	a.remove()
	require.Empty(t, a.list(ids))
}

// TestSagasAreRemovedInBatches, several of which make a pass; a pass goes on behind records that stay.
func TestSagasAreRemovedInBatches(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.exec(`
		INSERT INTO troupe.sagas (id, saga, key, hop, consumer_group, definition, version, status, steps, state, started_at, ended_at)
		SELECT 'order/' || n, 'order', n, 'shop.order', 'shop.order', 'd', 1, 'completed', '', '{"steps": []}', now() - interval '100 days', now() - interval '100 days'
		FROM generate_series(1, 1000) AS n`)
	a.exec("INSERT INTO troupe.saga_locks (name, saga_id) SELECT id, id FROM troupe.sagas WHERE key::integer <= 300")
	require.EqualValues(t, 700, a.remove()[retention.Sagas])
	require.Len(t, a.list(ids), 300)
}

// TestTwoSessionsDoNotRemoveOneKindAtOnce: the second one leaves it to the first.
func TestTwoSessionsDoNotRemoveOneKindAtOnce(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.saga("o-1", "completed", "91 days")
	tx, err := a.pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	_, err = tx.Exec(t.Context(), "SELECT FROM troupe.retention WHERE kind = 'sagas' FOR UPDATE")
	require.NoError(t, err)
	require.Zero(t, a.remove()[retention.Sagas])
	require.Len(t, a.list(ids), 1)
}

// TestAProgramsRoleRemovesNothing: no role but the owner may delete from the log of sagas.
func TestAProgramsRoleRemovesNothing(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.saga("o-1", "completed", "91 days")
	for _, part := range grants.Parts() {
		_, err := retention.NewRecords(grantstest.New(t, a.pool, part).Pool()).Remove(t.Context())
		require.ErrorIs(t, err, retention.ErrNotOwner, part)
	}
	require.Len(t, a.list(logs), 1)
}

// TestNoRoleRemovesALogByTheTimesOfItsSaga: roles that may write a saga set that it started and ended long ago. Its log is an audit log, and has
// entries of today.
func TestNoRoleRemovesALogByTheTimesOfItsSaga(t *testing.T) {
	t.Parallel()
	for part, sql := range map[grants.Part]string{
		grants.SagaOperator: "UPDATE troupe.sagas SET status = 'abandoned', ended_at = '2001-01-01'",
		grants.Sagas:        "UPDATE troupe.sagas SET status = 'abandoned', started_at = '2001-01-01', ended_at = '2001-01-01'",
	} {
		a := newArchive(t)
		a.saga("o-1", "running", "")
		_, err := grantstest.New(t, a.pool, part).Pool().Exec(t.Context(), sql)
		require.NoError(t, err)
		require.Zero(t, a.remove()[retention.Sagas], part)
		require.Equal(t, []string{"order/o-1"}, a.list(logs), part)
		a.exec("UPDATE troupe.saga_events SET recorded_at = recorded_at - interval '91 days'")
		require.EqualValues(t, 1, a.remove()[retention.Sagas], part)
		require.Empty(t, a.list(logs), part)
	}
}

// letter inserts a dead letter that was made and closed that long ago.
func (a archive) letter(messageID, status, made, closed string) (id string) {
	a.Helper()
	require.NoError(a, a.pool.QueryRow(a.Context(), `
		WITH letter AS (
		  INSERT INTO troupe.dead_letters (consumer_group, handler, error_class, error, attempts, topic, topic_id, partition, "offset", headers,
		    message_id, message_type, correlation_id, redrives, status, first_failed_at, last_failed_at, created_at)
		  VALUES ('shop.payment', 'h', 'permanent', 'e', 1, 't', gen_random_uuid(), 0, 0, '', $1, 'T', 'c', 1, $2, now(), now(), now() - $3::interval)
		  RETURNING id
		), repair AS (
		  INSERT INTO troupe.repairs (at, actor, action, reason, dead_letter_id, consumer_group, topic, partition, "offset", message_id)
		  SELECT now() - $4::interval, 'ann', 'discard', 'r', id, 'shop.payment', 't', 0, 0, $1
		  FROM letter
		  WHERE $2 <> 'open'
		)
		SELECT id::text FROM letter`, messageID, status, made, closed).Scan(&id))
	return id
}

const letters = "SELECT message_id FROM troupe.dead_letters ORDER BY message_id"

// TestClosedDeadLettersAreRemoved, with the log of the actions on them.
func TestClosedDeadLettersAreRemoved(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.letter("discarded", "discarded", "91 days", "91 days")
	a.letter("redriven", "redriven", "91 days", "91 days")
	a.letter("lately", "discarded", "200 days", "1 day")
	a.letter("open", "open", "200 days", "0 days")
	removed := a.remove()
	require.EqualValues(t, 2, removed[retention.DeadLetters])
	require.Equal(t, []string{"lately", "open"}, a.list(letters))
	a.exec("INSERT INTO troupe.repairs (at, actor, action, reason, consumer_group, topic, partition, \"offset\", message_id) " +
		"VALUES (now() - interval '91 days', 'ann', 'retry', '', 'g', 't', 0, 0, 'held')")
	a.remove()
	require.Equal(t, []string{"lately"}, a.list("SELECT message_id FROM troupe.repairs ORDER BY 1"))
}

// TestAnEditLosesItsContentWithItsDeadLetter: the log of actions may be kept for longer, and an erasure finds an edit by the key of its dead
// letter.
func TestAnEditLosesItsContentWithItsDeadLetter(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.letter("edited", "redriven", "91 days", "91 days")
	a.letter("lately", "redriven", "91 days", "1 day")
	a.exec("UPDATE troupe.retention SET keep = NULL WHERE kind = 'repairs'; UPDATE troupe.repairs SET action = 'edit', payload_before = 'a', payload_after = 'b'")
	a.remove()
	require.Equal(t, []string{"lately"}, a.list(letters))
	require.Equal(t, []string{"edited", "lately"}, a.list("SELECT message_id FROM troupe.repairs ORDER BY 1"))
	require.Equal(t, []string{"lately"}, a.list("SELECT message_id FROM troupe.repairs WHERE payload_before IS NOT NULL OR payload_after IS NOT NULL"))
}

// TestADeadLetterIsKeptAsLongAsItsIdentityIsInTheInbox: without it, a participant would take a redrive for one that comes after the
// message took effect, and pass it over.
func TestADeadLetterIsKeptAsLongAsItsIdentityIsInTheInbox(t *testing.T) {
	t.Parallel()
	const v7 = "0191f6a8-0000-7000-8000-000000000001" // of 2024-09-15
	for name, row := range map[string]struct{ id, uses string }{
		"an id of its own":    {"m-1", "INSERT INTO troupe.inbox (consumer_group, message_id, redrive) VALUES ('shop.payment', 'm-1', 1)"},
		"an id of a source":   {"m-1", "INSERT INTO troupe.inbox (consumer_group, message_id, redrive) VALUES ('shop.payment', 'm-1~0123456789abcdef', 1)"},
		"an id of a day":      {v7, "INSERT INTO troupe.inbox_recent (slot, consumer_group, id, redrive) VALUES (19981 % 32, 'shop.payment', '" + v7 + "', 1)"},
		"an id of a deadline": {v7, "INSERT INTO troupe.deadlines (consumer_group, scope, name, id, due_at, type, headers, fired_at) VALUES ('shop.payment', 's', 'n', '" + v7 + "', now(), 'T', '{}', now())"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.letter(row.id, "redriven", "91 days", "91 days")
			a.letter("other", "redriven", "91 days", "91 days")
			a.exec(row.uses)
			a.remove()
			require.Equal(t, []string{row.id}, a.list(letters))
			for _, table := range []string{"inbox", "inbox_recent", "deadlines"} {
				a.exec("DELETE FROM troupe." + table)
			}
			a.remove()
			require.Empty(t, a.list(letters))
		})
	}
}

// TestTheLogOfARelaysOperatorsIsRemoved, except the pause that applies, and a discard that a stream may have to skip.
func TestTheLogOfARelaysOperatorsIsRemoved(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	const repair = `INSERT INTO troupe.outbox_repairs (at, actor, action, reason, row_position, row_id, topic, attempts, last_error, lsn)
		VALUES (now() - $1::interval, 'ann', $2, 'r', 1, gen_random_uuid(), $3, 1, 'e', $4)`
	a.exec(repair, "91 days", "retry", "old retry", "0/500")
	a.exec(repair, "91 days", "discard", "old discard", "0/100")
	a.exec(repair, "91 days", "discard", "discard ahead of the stream", "0/300")
	a.exec(repair, "1 day", "retry", "recent", "0/400")
	a.exec("INSERT INTO troupe.relay_state (slot, source, system_id, timeline, lsn) VALUES ('s', 'wal', '1', 1, '0/200')")
	const pause = "INSERT INTO troupe.relay_pauses (at, actor, action, reason, shard) VALUES (now() - $1::interval, 'ann', $2, $3, 0)"
	a.exec(pause, "99 days", "pause", "over")
	a.exec(pause, "98 days", "resume", "over")
	a.exec(pause, "97 days", "pause", "applies")
	a.exec("INSERT INTO troupe.relay_leases (shard, holder, term, expires_at, paused_at, paused_by, paused_why) " +
		"VALUES (0, '', 0, now(), now() - interval '97 days', 'ann', 'applies')")
	require.EqualValues(t, 4, a.remove()[retention.Repairs])
	require.Equal(t, []string{"discard ahead of the stream", "recent"}, a.list("SELECT topic FROM troupe.outbox_repairs ORDER BY 1"))
	require.Equal(t, []string{"applies"}, a.list("SELECT reason FROM troupe.relay_pauses"))
	a.exec("UPDATE troupe.relay_state SET lsn = '0/300'")
	a.exec("UPDATE troupe.relay_leases SET paused_at = NULL, paused_by = NULL, paused_why = NULL")
	require.EqualValues(t, 2, a.remove()[retention.Repairs])

	a.exec(repair, "91 days", "discard", "after the stream", "0/900")
	require.Zero(t, a.remove()[retention.Repairs])
	a.exec("UPDATE troupe.relay_state SET source = 'poll'") // another stream begins with a slot of its own
	require.EqualValues(t, 1, a.remove()[retention.Repairs])
}

// TestTheStatementsOfRetentionScanNoTable, also in a plan that was made while the tables were empty.
func TestTheStatementsOfRetentionScanNoTable(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	args := pgx.NamedArgs{
		"ids": []string{"order/o-1"}, "groups": []string{"g"}, "limit": 10, "status": "completed", "after_at": "2020-01-01", "after_id": "",
		"before": "2020-01-01", "after": 0,
	}
	for statement, scans := range map[string][]string{
		"lock_sagas": nil, "delete_sagas": nil, "delete_repairs": nil, "delete_outbox_repairs": {"relay_state"}, "delete_pauses": {"relay_leases"},
		"delete_dead_letters": {"deadlines"}, "list_answering_groups": nil,
	} {
		text, err := os.ReadFile("sql/" + statement + ".sql")
		require.NoError(t, err)
		conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
		require.NoError(t, err)
		defer conn.Close(t.Context())
		_, err = conn.Exec(t.Context(), "SET plan_cache_mode = force_generic_plan")
		require.NoError(t, err)
		sql, values, err := args.RewriteQuery(t.Context(), conn, string(text), nil)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), "PREPARE it AS "+sql, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err, statement)
		list := ""
		if len(values) > 0 {
			list = "(" + strings.Repeat(", NULL", len(values))[2:] + ")"
		}
		rows, err := conn.Query(t.Context(), "EXPLAIN EXECUTE it "+list, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		for _, line := range plan {
			_, table, scan := strings.Cut(line, "Seq Scan on ")
			name, _, _ := strings.Cut(table, " ")
			require.False(t, scan && !slices.Contains(scans, name), "%s:\n%s", statement, strings.Join(plan, "\n"))
		}
	}
}
