package erasure_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/erasure"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/pgtext"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// A stage is a database with the data of people.
type stage struct {
	*testing.T
	pool *pgxpool.Pool
	desk erasure.Desk
}

func newStage(t *testing.T) stage {
	pool := testkit.Database(t)
	return stage{t, pool, erasure.Desk{Pool: pool}}
}

func (s stage) exec(sql string, args ...any) {
	s.Helper()
	_, err := s.pool.Exec(s.Context(), sql, args...)
	require.NoError(s, err, sql)
}

func (s stage) list(sql string, args ...any) []string {
	s.Helper()
	rows, err := s.pool.Query(s.Context(), sql, args...)
	require.NoError(s, err, sql)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(s, err, sql)
	return all
}

// tables returns all tables of the schema that are no partitions.
func (s stage) tables() []string {
	return s.list(`SELECT relname::text FROM pg_class
		WHERE relnamespace = 'troupe'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY 1`)
}

// rowsWith returns the rows of all tables that contain a text, also as bytes.
func (s stage) rowsWith(text string) (all []string) {
	for _, table := range s.tables() {
		for _, row := range s.list("SELECT t::text FROM troupe." + table + " AS t") {
			if strings.Contains(row, text) || strings.Contains(row, hex.EncodeToString([]byte(text))) {
				all = append(all, table+": "+row)
			}
		}
	}
	slices.Sort(all)
	return all
}

func secretOf(key string) string { return "secret of " + key + "!" }

// records stores records of a key whose work has ended in each table that can have some, with a secret in each column for data.
func (s stage) records(key string) {
	replace := strings.NewReplacer("KEY", key, "SECRET", secretOf(key), "BYTES", "convert_to('"+secretOf(key)+"', 'UTF8')", "ASKEY", "convert_to('"+key+"', 'UTF8')")
	for _, sql := range []string{
		`INSERT INTO troupe.outbox (topic, key, type, headers, payload) VALUES ('t', 'KEY', 'T', '{"h": "SECRET"}', BYTES)`,
		`INSERT INTO troupe.outbox (topic, key_bytes, type, raw_headers, payload) VALUES ('t', ASKEY, 'T', BYTES, BYTES)`,
		`INSERT INTO troupe.outbox_repairs (actor, action, reason, row_position, row_id, topic, order_key, attempts, last_error, type, headers, raw_headers, payload, mapped_row)
			VALUES ('ann', 'discard', 'ticket 1', 1, gen_random_uuid(), 't', ASKEY, 1, 'SECRET', 'T', '{"h": "SECRET"}', BYTES, BYTES, '{"r": "SECRET"}')`,
		`INSERT INTO troupe.dead_letters (consumer_group, handler, error_class, error, attempts, topic, topic_id, partition, "offset", key, headers, payload,
				edited_payload, message_id, message_type, correlation_id, status, first_failed_at, last_failed_at)
			VALUES ('g', 'h', 'permanent', 'SECRET', 1, 't', gen_random_uuid(), 0, 0, ASKEY, BYTES, BYTES, BYTES, 'm of KEY', 'T', 'SECRET', 'discarded', now(), now())`,
		`INSERT INTO troupe.repairs (actor, action, reason, dead_letter_id, consumer_group, topic, partition, "offset", message_id, payload_before, payload_after)
			SELECT 'ann', 'edit', 'ticket 2', id, 'g', 't', 0, 0, message_id, BYTES, BYTES FROM troupe.dead_letters WHERE key = ASKEY`,
		`INSERT INTO troupe.local_work (position, consumer_group, id, topic, key, type, headers, payload, created_at, hold_key, status, attempts, last_error, ended_at)
			SELECT count(*), 'g', gen_random_uuid(), 't', 'KEY', 'T', '{"h": "SECRET"}', BYTES, now(), BYTES, 'failed', 1, 'SECRET', now() - interval '61 minutes'
			FROM troupe.local_work`,
		`INSERT INTO troupe.sagas (id, saga, key, hop, consumer_group, definition, version, status, steps, reason, state, started_at, ended_at)
			VALUES ('order/KEY', 'order', 'KEY', 'shop.order', 'shop.order', 'd', 2, 'compensated', '', 'SECRET', '{"saga": "order", "key": "KEY", "definition": "d",
				"correlation": "SECRET", "started_with": "SECRET", "version": 2, "status": "compensated", "back": true, "reason": "SECRET", "data": {"name": "SECRET", "none": null},
				"steps": [{"name": "seat", "phase": "done", "started": 1, "answer": "SeatTaken"}, {"name": "seat[0]"}, {"name": "seat[1]"}],
				"lists": {"seat": ["SECRET", {"p": "SECRET"}], "bag": []}, "early": [{"kind": "observed", "fields": {"f": "SECRET"}}],
				"deadlines": [{"name": "d", "payload": {"p": "SECRET"}}], "later": "SECRET", "started_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-02T00:00:00Z"}', now(), now())`,
		`INSERT INTO troupe.saga_events (saga_id, version, at, kind, event, moments) VALUES ('order/KEY', 1, now(), 'started',
			'{"kind": "started", "fields": {"name": "SECRET"}, "correlation": "SECRET", "data_hash": "SECRET", "message": "m-1"}', '[{"what": "SagaStarted", "why": "SECRET"}]')`,
		`INSERT INTO troupe.saga_events (saga_id, version, at, kind, event, moments, actor, reason) VALUES ('order/KEY', 2, now(), 'compensate',
			'{"kind": "compensate", "actor": "ann", "reason": "ticket 3", "fields": {"f": "SECRET"}}', '[]', 'ann', 'ticket 3')`,
		`INSERT INTO troupe.saga_stash (saga, variable, value, message_id, event, expires_at) VALUES ('order', '', 'KEY', 'm-1', '{"f": "SECRET"}', now() - interval '1 hour')`,
		`INSERT INTO troupe.saga_stash (saga, variable, value, message_id, event, expires_at)
			VALUES ('order', 'payment', 'SECRET', 'm-2', '{"key": "KEY", "f": "SECRET"}', now() - interval '1 hour')`,
		`INSERT INTO troupe.joins (consumer_group, name, key, status, arrived, ended_at, forget_at) VALUES ('g', 'j', 'KEY', 'expired', '{}', now(), now())`,
		`INSERT INTO troupe.join_parts (consumer_group, name, key, part, headers, payload) VALUES ('g', 'j', 'KEY', 'p', BYTES, BYTES)`,
		`INSERT INTO troupe.expectations (consumer_group, name, key, met_at, forget_at, headers, payload) VALUES ('g', 'e', 'KEY', now(), now(), BYTES, BYTES)`,
		`INSERT INTO troupe.answers (consumer_group, message_type, idempotency_key, outcome, type, content_type, payload, command_key)
			VALUES ('h', 'forward charge', 'flight/KEY', 'success', 'Charged', 'application/json', BYTES, 'k')`,
		`INSERT INTO troupe.answers (consumer_group, message_type, idempotency_key, outcome, type, content_type, payload, request_hash)
			VALUES ('h', 'Charge', 'KEY', 'success', 'Charged', 'application/json', BYTES, BYTES)`,
		`INSERT INTO troupe.watch_messages (slot, flow, topic, partition, "offset", at, written_at, type, outcome, id, correlation, key, id_text, flow_text)
			VALUES (3, 1, 1, 0, 0, now(), now(), 1, 0, gen_random_uuid(), gen_random_uuid(), 'KEY', 'SECRET', 'SECRET')`,
		`INSERT INTO troupe.watch_findings (slot, flow, rule, about, topic, type, correlation, flow_text, key, at, found_at)
			VALUES (3, 1, 1, gen_random_uuid(), 1, 1, gen_random_uuid(), 'SECRET', 'KEY', now(), now())`,
		`INSERT INTO troupe.subject_keys (subject, wrapped_key) VALUES (sha256(ASKEY), BYTES)`,
	} {
		s.exec(replace.Replace(sql))
	}
	// Now the outbox is published.
	s.exec(`INSERT INTO troupe.relay_state AS s (slot, source, system_id, timeline, published)
		VALUES ('slot', 'wal', (SELECT system_identifier::text FROM pg_control_system()), 1, pg_current_snapshot())
		ON CONFLICT (slot) DO UPDATE SET published = excluded.published`)
}

var ann = admin.Actor{Name: "ann", Reason: "ticket 9"}

func (s stage) erase(key string) erasure.Report {
	s.Helper()
	planned, err := s.desk.Plan(s.Context(), key)
	require.NoError(s, err)
	done, err := s.desk.Erase(s.Context(), key, ann)
	require.NoError(s, err)
	require.Equal(s, planned, done, "the preview is equal to the report")
	return done
}

// TestNothingOfAPersonIsLeft in any table, and nothing of others changes. A second erasure finds nothing.
func TestNothingOfAPersonIsLeft(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.records("o-1")
	s.records("t/o-1")
	s.records("o-11")
	require.Len(t, s.rowsWith(secretOf("o-1")), 18)
	others := append(s.rowsWith(secretOf("t/o-1")), s.rowsWith(secretOf("o-11"))...)

	done := s.erase("o-1")
	require.Empty(t, s.rowsWith(secretOf("o-1")))
	require.Equal(t, others, append(s.rowsWith(secretOf("t/o-1")), s.rowsWith(secretOf("o-11"))...))
	require.Equal(t, []erasure.Change{
		{"outbox", 2, "deleted"}, {"outbox_repairs", 1, "blanked"}, {"repairs", 1, "blanked"}, {"dead_letters", 1, "blanked"}, {"local_work", 1, "deleted"},
		{"saga_events", 2, "blanked"}, {"sagas", 1, "blanked"}, {"saga_stash", 2, "deleted"}, {"join_parts", 1, "deleted"}, {"expectations", 1, "blanked"},
		{"answers", 2, "blanked"}, {"subject_keys", 1, "blanked"}, {"watch_messages", 1, "deleted"}, {"watch_findings", 1, "deleted"},
	}, done.Changes)

	require.Equal(t, []string{`{"key": "o-1", "back": true, "data": {}, "saga": "order", "lists": {"seat": [null, null]}, "steps": [{"name": "seat", "phase": "done", "answer": "SeatTaken", "started": 1}, ` +
		`{"name": "seat[0]"}, {"name": "seat[1]"}], "status": "compensated", "version": 2, "ended_at": "2026-01-02T00:00:00Z", "definition": "d", "started_at": "2026-01-01T00:00:00Z"}`},
		s.list("SELECT (state - 'erased')::text FROM troupe.sagas WHERE key = 'o-1'"))
	require.Equal(t, []string{`{"kind": "started", "message": "m-1"} [{"what": "SagaStarted"}]`, `{"kind": "compensate", "actor": "ann", "reason": "ticket 3"} [] ann ticket 3`},
		s.list("SELECT concat_ws(' ', event, moments, actor, reason) FROM troupe.saga_events WHERE saga_id = 'order/o-1' ORDER BY version"))

	again := s.erase("o-1")
	require.Empty(t, again.Changes)
	require.NotNil(t, again.Before)
}

// TestAKeyThatIsStoredAsAHash is erased, too: tables with an index on the key store a long one so.
func TestAKeyThatIsStoredAsAHash(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	key := strings.Repeat("o", 256)
	s.exec(`INSERT INTO troupe.joins (consumer_group, name, key, status, arrived, ended_at, forget_at) VALUES ('g', 'j', $1, 'expired', '{}', now(), now())`, pgtext.Indexable(key))
	s.exec(`INSERT INTO troupe.join_parts (consumer_group, name, key, part, headers, payload) VALUES ('g', 'j', $1, 'p', 'secret', 'secret')`, pgtext.Indexable(key))
	require.Equal(t, []erasure.Change{{"join_parts", 1, "deleted"}}, s.erase(key).Changes)
	s.exec(`INSERT INTO troupe.deadlines (consumer_group, scope, name, id, due_at, key, type, headers) VALUES ('g', $1, 'n', gen_random_uuid(), now(), 'x', 'T', '{}')`, pgtext.Indexable(key))
	r, err := s.desk.Erase(t.Context(), key, ann)
	require.ErrorIs(t, err, erasure.ErrInTheWay)
	require.Equal(t, "deadlines", r.InTheWay[0].Table)
}

// TestAMessageAboutASagaThatIsNotThere is erased, too: the saga was removed, or lost with a database that was set back.
func TestAMessageAboutASagaThatIsNotThere(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec("INSERT INTO troupe.saga_definitions (hash, saga, version, definition) VALUES ('d', 'order', 1, '{}')")
	s.exec(`INSERT INTO troupe.local_work (position, consumer_group, id, topic, key, type, headers, created_at, hold_key, status, ended_at)
		VALUES (7, 'g', gen_random_uuid(), 't', 'order/o-1', 'T', '{}', now(), '', 'done', now() - interval '2 hours')`)
	require.Equal(t, []erasure.Change{{"local_work", 1, "deleted"}}, s.erase("o-1").Changes)
	s.exec("INSERT INTO troupe.deadlines (consumer_group, scope, name, id, due_at, key, type, headers) VALUES ('g', 's', 'retry-event', gen_random_uuid(), now(), 'order/o-1', 'T', '{}')")
	r, err := s.desk.Erase(t.Context(), "o-1", ann)
	require.ErrorIs(t, err, erasure.ErrInTheWay)
	require.Equal(t, "deadlines", r.InTheWay[0].Table)
}

// TestPublishedRowsAreErased although a restore gave them the transaction ids of another server, and a relay had another slot before.
func TestPublishedRowsAreErased(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(`INSERT INTO troupe.relay_state (slot, source, system_id, timeline, published, updated_at)
		VALUES ('former', 'wal', (SELECT system_identifier::text FROM pg_control_system()), 1, '3:3:', now() - interval '1 day')`)
	s.exec("INSERT INTO troupe.outbox (topic, key, type, xid) VALUES ('t', 'o-1', 'T', '9000000000000000000')")
	s.records("o-1")
	require.Equal(t, erasure.Change{Table: "outbox", Rows: 3, Effect: "deleted"}, s.erase("o-1").Changes[0])
}

// TestARecordOfAnErasureHasNoneOfItsData but the digest of the key.
func TestARecordOfAnErasureHasNoneOfItsData(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.records("o-1")
	report := s.erase("o-1")
	rows := s.list("SELECT concat_ws(' ', actor, role = session_user, reason, encode(key_digest, 'hex'), changed) FROM troupe.erasures")
	require.Equal(t, []string{"ann t ticket 9 " + report.Digest + ` {"sagas": 1, "outbox": 2, "answers": 2, "repairs": 1, "join_parts": 1, "local_work": 1, "saga_stash": 2, "saga_events": 2, ` +
		`"dead_letters": 1, "expectations": 1, "subject_keys": 1, "outbox_repairs": 1, "watch_findings": 1, "watch_messages": 1}`}, rows)
	require.NotContains(t, fmt.Sprintf("%+v", report), "o-1")

	for _, by := range []admin.Actor{{Name: "ann", Reason: "asked by o-2."}, {Name: "o-2", Reason: "ticket"}, {Name: "ann"}} {
		_, err := s.desk.Erase(t.Context(), "o-2", by)
		require.ErrorAs(t, err, new(admin.FieldError), by)
	}
	for _, key := range []string{"", "a\x00b", "\xff"} {
		_, err := s.desk.Erase(t.Context(), key, ann)
		require.ErrorContains(t, err, "want a key", key)
	}
	require.Len(t, s.list("SELECT reason FROM troupe.erasures"), 1)
}

// TestWorkOfAKeyIsInTheWay of its erasure, which then changes nothing.
func TestWorkOfAKeyIsInTheWay(t *testing.T) {
	t.Parallel()
	const (
		deadline = `INSERT INTO troupe.deadlines (consumer_group, scope, name, id, due_at, key, type, headers) VALUES ('g', '%s', 'n', gen_random_uuid(), now(), '%s', 'T', '{}')`
		local    = `INSERT INTO troupe.local_work (position, consumer_group, id, topic, key, type, headers, created_at, hold_key, status, ended_at)
			VALUES (7, 'g', gen_random_uuid(), 't', 'o-1', 'T', '{}', now(), '', '%s', %s)`
	)
	for name, sql := range map[string]string{
		"outbox": "INSERT INTO troupe.outbox (topic, key, type) VALUES ('t', 'o-1', 'T')",
		"outbox, outbox_failures": `WITH o AS (INSERT INTO troupe.outbox (topic, key, type) VALUES ('t', 'o-1', 'T') RETURNING position, id)
			INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, attempts, max_attempts, last_error) SELECT position, id, 't', 'o-1', 'parked', 1, 1, 'e' FROM o`,
		"outbox of another cluster": `WITH o AS (INSERT INTO troupe.outbox (topic, key, type) VALUES ('t', 'o-1', 'T'))
			UPDATE troupe.relay_state SET system_id = '1', published = '9223372036854775807:9223372036854775807:'`,
		"outbox of a restored dump": "INSERT INTO troupe.outbox (topic, key, type, xid) VALUES ('t', 'o-1', 'T', '3')",
		"mapped_failures": `WITH t AS (INSERT INTO troupe.mapped_tables (name) VALUES ('public.events') RETURNING name)
			INSERT INTO troupe.mapped_failures (table_name, id, event_id, topic, order_key, status, attempts, max_attempts, last_error, row)
			SELECT name, gen_random_uuid(), '', 't', 'o-1', 'parked', 1, 1, 'e', '{}' FROM t`,
		"held": `INSERT INTO troupe.held (consumer_group, topic_id, partition, "offset", topic, hold_key, key, headers, message_time, max_attempts)
			VALUES ('g', gen_random_uuid(), 0, 0, 't', '', 'o-1', '', now(), 1)`,
		"held set apart": `INSERT INTO troupe.held (consumer_group, topic_id, partition, "offset", topic, hold_key, key, headers, message_time, max_attempts)
			VALUES ('g', gen_random_uuid(), 0, 0, 't', '', 'order/o-1', '', now(), 1)`,
		"outbox set apart":            "INSERT INTO troupe.outbox (topic, key_bytes, type) VALUES ('t', 'order/o-1', 'T')",
		"dead_letters":                "UPDATE troupe.dead_letters SET status = 'open'",
		"deadlines":                   fmt.Sprintf(deadline, "x", "o-1"),
		"deadlines of the scope":      fmt.Sprintf(deadline, "o-1", "x"),
		"deadlines of the saga":       fmt.Sprintf(deadline, "order/o-1", "x"),
		"deadlines set apart":         fmt.Sprintf(deadline, "x", "order/o-1"),
		"local_work":                  fmt.Sprintf(local, "pending", "NULL"),
		"local_work of the last hour": fmt.Sprintf(local, "done", "now() - interval '59 minutes'"),
		"sagas":                       "UPDATE troupe.sagas SET status = 'parked', ended_at = NULL",
		"saga_stash":                  "UPDATE troupe.saga_stash SET expires_at = now() + interval '1 minute' WHERE variable = ''",
		"saga_stash of no coordinator": `WITH g AS (INSERT INTO troupe.inbox_groups (consumer_group, days, coordinated_at) VALUES ('shop.order', 7, now() - interval '2 hours'))
			UPDATE troupe.saga_stash SET expires_at = now() - interval '1 hour' WHERE variable = ''`,
		"joins":                 "UPDATE troupe.joins SET status = 'open', ended_at = NULL, forget_at = NULL",
		"expectations":          "UPDATE troupe.expectations SET after_at = now(), due_at = now(), alert_id = gen_random_uuid(), met_at = NULL, forget_at = NULL",
		"expectations to alert": "UPDATE troupe.expectations SET alert_at = now()",
		"schedules":             `INSERT INTO troupe.schedules (name, cron, zone, topic, key, type, next_at) VALUES ('n', '@daily', 'UTC', 't', 'o-1', 'T', now())`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.records("o-1")
			s.exec(sql)
			var want []string
			table, _, _ := strings.Cut(name, " of ")
			table, _, _ = strings.Cut(table, " set apart")
			table, _, _ = strings.Cut(table, " to alert")
			want = strings.Split(table, ", ")
			before := s.rowsWith("o-1")
			r, err := s.desk.Erase(t.Context(), "o-1", ann)
			require.ErrorIs(t, err, erasure.ErrInTheWay)
			var found []string
			for _, o := range r.InTheWay {
				require.NotEmpty(t, o.Remedy)
				found = append(found, o.Table)
			}
			require.Equal(t, want, found)
			require.Equal(t, before, s.rowsWith("o-1"))
			require.Empty(t, s.list("SELECT actor FROM troupe.erasures"))

			if !strings.Contains(name, " of another cluster") && !strings.Contains(name, " of no coordinator") { // which are about all keys
				s.records("o-2")
				s.erase("o-2")
			}
		})
	}
}

// TestEachColumnOfEachTableIsListed, so that no new one is forgotten, and the page names each table with data.
func TestEachColumnOfEachTableIsListed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	page, err := os.ReadFile("../../../docs/erasure.md")
	require.NoError(t, err)
	listed := erasure.Columns()
	for _, table := range s.tables() {
		columns := s.list("SELECT attname::text FROM pg_attribute WHERE attrelid = ('troupe.' || $1)::regclass AND attnum > 0 AND NOT attisdropped ORDER BY 1", table)
		have, ok := listed[table]
		require.True(t, ok, "list table %s in tables.go: with the way in which its rows are erased, or without data", table)
		delete(listed, table)
		if have != nil { // else no row stays
			slices.Sort(have)
			require.Equal(t, columns, have, "table %s: decide on each column in tables.go whether an erasure blanks it", table)
		}
		if erasure.HasData(table) {
			require.Contains(t, string(page), "`"+table+"`", "docs/erasure.md")
		}
	}
	require.Empty(t, listed, "tables that do not exist")
}

// TestOnlyTheOwnerErases, and a viewer sees the preview.
func TestOnlyTheOwnerErases(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.records("o-1")
	viewer := erasure.Desk{Pool: grantstest.New(t, s.pool, grants.Viewer).Pool()}
	seen, err := viewer.Plan(t.Context(), "o-1")
	require.NoError(t, err)
	require.Len(t, seen.Changes, 14)
	everything := erasure.Desk{Pool: grantstest.New(t, s.pool, grants.Parts()...).Pool()}
	_, err = everything.Erase(t.Context(), "o-1", ann)
	require.ErrorContains(t, err, "does not own Troupe's tables")
	require.Len(t, s.rowsWith(secretOf("o-1")), 18)
}

// TestAnErasureIsWholeOrNotAtAll if a row changes while it runs.
func TestAnErasureIsWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.records("o-1")
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	_, err = tx.Exec(t.Context(), "UPDATE troupe.dead_letters SET status = 'redriven'")
	require.NoError(t, err)
	before := s.rowsWith(secretOf("o-1"))
	done := make(chan error, 1)
	go func() {
		_, err := s.desk.Erase(t.Context(), "o-1", ann)
		done <- err
	}()
	testkit.Wait(t, "the erasure to wait for the row", func() (bool, error) {
		var n int
		err := s.pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&n)
		return n == 1, err
	})
	require.NoError(t, tx.Commit(t.Context()))
	require.ErrorContains(t, <-done, "changed meanwhile, and nothing was erased")
	require.Len(t, s.rowsWith(secretOf("o-1")), len(before))
	s.erase("o-1")
	require.Empty(t, s.rowsWith(secretOf("o-1")))
}

// TestAnErasureIsOnDiskBeforeItIsReported: a crash of the server brings no data back, whatever the role's synchronous_commit is.
func TestAnErasureIsOnDiskBeforeItIsReported(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.records("o-1")
	s.exec("CREATE TABLE waited (setting text)")
	s.exec("CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO waited VALUES (current_setting('synchronous_commit')); RETURN new; END $$")
	s.exec("CREATE TRIGGER note BEFORE INSERT ON troupe.erasures FOR EACH ROW EXECUTE FUNCTION note()")
	config := s.desk.Pool.Config()
	config.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = erasure.Desk{Pool: pool}.Erase(t.Context(), "o-1", ann)
	require.NoError(t, err)
	require.Equal(t, []string{"local"}, s.list("SELECT setting FROM waited"))
}

// TestASubjectWithoutAKeyIsForgottenToo checks that no service makes a key for it after the erasure.
func TestASubjectWithoutAKeyIsForgottenToo(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const rows = "SELECT count(*)::text FROM troupe.subject_keys WHERE subject = sha256('o-1') AND wrapped_key IS NULL"
	s.erase("o-1")
	require.Equal(t, []string{"0"}, s.list(rows), "the database has no keys at all: it is not the one with the keys")

	s.exec("INSERT INTO troupe.subject_keys (subject, wrapped_key) VALUES (sha256('o-2'), 'key')")
	require.Empty(t, s.erase("o-1").Changes)
	require.Equal(t, []string{"1"}, s.list(rows))
	s.exec("INSERT INTO troupe.subject_keys (subject, wrapped_key) VALUES (sha256('o-1'), 'key') ON CONFLICT DO NOTHING") // as a service does
	require.Equal(t, []string{"1"}, s.list(rows))
	require.Empty(t, s.erase("o-1").Changes)
}
