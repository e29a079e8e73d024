//go:build unix

package relay_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

const secondTable = "public.events_second"

// makeTables makes the mapped tables.
func (h *history) makeTables() {
	primary, parts := "PRIMARY KEY (n)", ""
	if h.plan.Parts {
		primary, parts = "PRIMARY KEY (n, part)", " PARTITION BY LIST (part)"
	}
	h.exec(`CREATE SEQUENCE public.events_n;
		CREATE DOMAIN public.label AS text;
		CREATE TABLE public.events (n bigint NOT NULL DEFAULT nextval('public.events_n'), id uuid NOT NULL DEFAULT gen_random_uuid(),
			aggregatetype text NOT NULL DEFAULT 'x', aggregateid text, type text NOT NULL DEFAULT 'Thing', payload text,
			xid xid8 DEFAULT pg_current_xact_id(), at timestamptz NOT NULL DEFAULT clock_timestamp(), extra text, pad text,
			part int NOT NULL DEFAULT 1, ` + primary + ")" + parts)
	if h.plan.Parts {
		h.exec(`CREATE TABLE public.events_0 PARTITION OF public.events FOR VALUES IN (0);
			CREATE TABLE public.events_1 PARTITION OF public.events FOR VALUES IN (1)`)
	}
	h.exec("ALTER TABLE public.events ALTER pad SET STORAGE EXTERNAL") // so that it is unchanged in an update
	h.exec("GRANT SELECT ON public.events TO " + h.role + `;
		CREATE PUBLICATION troupe_events FOR TABLE public.events WITH (publish = '` + h.publishes() + `', publish_via_partition_root = true)`)
	if h.plan.Second {
		h.exec("CREATE TABLE " + secondTable + " (LIKE public.events INCLUDING ALL); GRANT SELECT ON " + secondTable + " TO " + h.role +
			"; CREATE PUBLICATION events_second FOR TABLE " + secondTable + " WITH (publish = 'insert')")
	}
}

// publishes returns the operations that the publication of the mapped table publishes.
func (h *history) publishes() string {
	if h.plan.Wide {
		return "insert, update, delete, truncate"
	}
	return "insert"
}

func (h *history) mapping() map[string]string {
	m := map[string]string{"route.topic.replacement": h.topic}
	switch h.plan.Order {
	case byPosition:
		m["table.field.position"] = "n"
	case byTimestamp:
		m["table.field.event.timestamp"] = "at"
	}
	if h.plan.XID {
		m["table.field.xid"] = "xid"
	}
	return m
}

// tableOf returns the mapped table that has the rows of a key.
func (h *history) tableOf(key int) string {
	if h.plan.Second && key == len(modelKeys)-1 {
		return secondTable
	}
	return h.table()
}

func (h *history) insertEvent(ctx context.Context, tx pgx.Tx, r modelRow) error {
	table, part := h.tableOf(r.key), 1
	if len(r.payload) > 20_000 { // the steps of an operator are for the first table
		table = h.table()
	}
	if r.leaf && table == h.table() {
		table, part = "public.events_0", 0
	}
	pad := ""
	if len(r.payload) < 20 {
		pad = strings.Repeat(r.payload, 1000)
	}
	_, err := tx.Exec(ctx, "INSERT INTO "+table+` (aggregateid, payload, xid, part, pad)
		VALUES ($1, $2, CASE WHEN NOT $3 THEN pg_current_xact_id() END, $4, $5)`,
		modelKeys[r.key], r.payload, r.withoutXID, part, pad)
	return err
}

// deleteIn deletes the rows of a key from number from on, published or not.
func (h *history) deleteIn(tx pgx.Tx, key, from int) {
	rows, err := tx.Query(context.Background(), "DELETE FROM "+h.tableOf(key)+` WHERE aggregateid IS NOT DISTINCT FROM $1
		AND CASE WHEN length(payload) <= 20000 THEN split_part(payload, '-', 2)::int >= $2 END RETURNING payload::text`, modelKeys[key], from)
	require.NoError(h.rt, err)
	h.haveDeleted(rows)
}

// haveDeleted records the payloads of deleted rows.
func (h *history) haveDeleted(rows pgx.Rows) {
	payloads, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(h.rt, err)
	for _, text := range payloads {
		h.deleted[text] = true
	}
}

// streams reports whether the relays of all mapped tables stream, or continue to when they are started again.
func (h *history) streams() bool {
	tables := 1
	if h.plan.Second {
		tables++
	}
	return !h.publicationIsOff() && h.count("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == tables &&
		h.count("SELECT count(*) FROM troupe.mapped_tables WHERE system_id <> '' AND source = 'wal' AND sweep IS NULL") == tables
}

// loseDeleted is called after a slot was lost: deleted rows that are not published yet may never be.
func (h *history) loseDeleted() {
	if len(h.deleted) == 0 {
		return
	}
	published := map[string]bool{}
	for _, r := range h.published() {
		published[string(r.Value)] = true
	}
	for text := range h.deleted {
		if !published[text] {
			h.lost[text] = true
		}
	}
}

// loseDeletedWithoutSlot is called after rows were deleted. streamed reports whether the relays streamed before: if not, the relay may have
// looked for the rows in the table after they were deleted, and stream since.
func (h *history) loseDeletedWithoutSlot(streamed bool) {
	if !streamed || !h.streams() {
		h.loseDeleted()
	}
}

// changeTable runs a step that changes the mapped table. It returns false if there is no such step.
func (h *history) changeTable(step modelStep) bool {
	h.changes++
	switch step.Kind {
	case "delete":
		streamed := h.streams()
		require.NoError(h.rt, pgx.BeginFunc(context.Background(), h.pool, func(tx pgx.Tx) error {
			h.deleteIn(tx, step.Key, 0)
			return nil
		}))
		h.loseDeletedWithoutSlot(streamed)
	case "truncate":
		h.empty("TRUNCATE public.events")
	case "update":
		h.exec("UPDATE "+h.tableOf(step.Key)+" SET extra = $2 WHERE aggregateid IS NOT DISTINCT FROM $1", modelKeys[step.Key], fmt.Sprint(h.changes))
	case "rewrite":
		index := fmt.Sprintf("backwards_%d", h.changes)
		h.alter([][]string{
			{"VACUUM FULL public.events"},
			{"ALTER TABLE public.events ALTER extra TYPE varchar USING upper(extra); ALTER TABLE public.events ALTER extra TYPE text"},
			{"CREATE INDEX " + index + " ON public.events (n DESC)", "CLUSTER public.events USING " + index, "DROP INDEX public." + index},
		}[h.changes%3]...)
	case "columns":
		column := fmt.Sprintf("added_%d", h.changes)
		h.alter("ALTER TABLE public.events ADD "+column+" int DEFAULT 7", "ALTER TABLE public.events DROP extra, ADD extra text",
			"ALTER TABLE public.events RENAME "+column+" TO renamed_"+column)
	case "retype":
		h.alter([]string{
			"ALTER TABLE public.events ALTER aggregateid TYPE public.label", "ALTER TABLE public.events ALTER aggregateid TYPE varchar(400)",
			"ALTER TABLE public.events ALTER aggregateid TYPE text", "ALTER TABLE public.events ALTER payload TYPE public.label",
			"ALTER TABLE public.events ALTER payload TYPE varchar", "ALTER TABLE public.events ALTER type TYPE public.label",
		}[h.changes%6])
	case "identity":
		h.alter("ALTER TABLE public.events REPLICA IDENTITY " + []string{"FULL", "DEFAULT"}[h.changes%2])
	case "detach":
		h.alter("ALTER TABLE public.events DETACH PARTITION public.events_0; ALTER TABLE public.events ATTACH PARTITION public.events_0 FOR VALUES IN (0)")
	case "attach":
		h.alter(fmt.Sprintf("CREATE TABLE public.events_later_%[1]d PARTITION OF public.events FOR VALUES IN (10%[1]d)", h.changes))
	case "rename":
		h.rename(step)
	case "swap":
		h.swap()
	default:
		return false
	}
	return true
}

// empty runs a statement after which the rows of the mapped table are no longer there.
func (h *history) empty(statement string) {
	streamed := h.streams()
	err := pgx.BeginFunc(context.Background(), h.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(context.Background(), "SET LOCAL lock_timeout = '1s'; LOCK TABLE public.events"); err != nil {
			return err
		}
		rows, err := tx.Query(context.Background(), "SELECT payload::text FROM public.events WHERE length(payload) <= 20000")
		require.NoError(h.rt, err)
		h.haveDeleted(rows)
		_, err = tx.Exec(context.Background(), statement)
		return err
	})
	require.NoError(h.rt, busy(err), statement)
	h.loseDeletedWithoutSlot(streamed)
}

// busy returns nil for the error of a lock that was not given in time: a sweep or a writer holds the table.
func busy(err error) error {
	if refusal := (*pgconn.PgError)(nil); errors.As(err, &refusal) && refusal.Code == "55P03" {
		return nil
	}
	return err
}

// alter runs statements that lock the table, unless others use it.
func (h *history) alter(statements ...string) {
	conn, err := h.pool.Acquire(context.Background())
	require.NoError(h.rt, err)
	defer conn.Release()
	_, err = conn.Exec(context.Background(), "SET lock_timeout = '1s'")
	require.NoError(h.rt, err)
	for _, statement := range statements {
		if _, err := conn.Exec(context.Background(), statement); err != nil {
			require.NoError(h.rt, busy(err), statement)
			break
		}
	}
	_, err = conn.Exec(context.Background(), "RESET lock_timeout")
	require.NoError(h.rt, err)
}

// rename gives the table another name for a while, in which a row is written.
func (h *history) rename(step modelStep) {
	h.commitOpen()
	h.interrupts()
	if h.frozen {
		return
	}
	if h.tableOf(step.Key) != h.table() {
		step.Key = 0
	}
	h.exec("ALTER TABLE public.events RENAME TO events_moved")
	require.NoError(h.rt, pgx.BeginFunc(context.Background(), h.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), "INSERT INTO public.events_moved (aggregateid, payload) VALUES ($1, $2)",
			modelKeys[step.Key], fmt.Sprintf("%d-%d", step.Key, h.committed[step.Key]))
		return err
	}))
	h.committed[step.Key]++
	h.exec("ALTER TABLE public.events_moved RENAME TO events")
}

// swap puts an empty table in the place of the mapped one, with its publication, and states as an operator that no row is missing in the log.
func (h *history) swap() {
	h.commitOpen()
	if h.frozen || h.publicationIsOff() {
		return
	}
	h.interrupts()
	h.empty(fmt.Sprintf(`ALTER TABLE public.events RENAME TO events_%[1]d; CREATE TABLE public.events (LIKE public.events_%[1]d INCLUDING ALL);
		GRANT SELECT ON public.events TO %[2]s; ALTER PUBLICATION troupe_events SET TABLE public.events`, h.changes, h.role))
	h.await("the relay to accept the publication", func() (bool, error) {
		h.exec(`UPDATE troupe.mapped_tables SET publication = NULL WHERE name = 'public.events' AND source = 'wal'
			AND publication NOT LIKE (SELECT '% ' || r.oid || ' %' FROM pg_publication_rel r WHERE r.prrelid = 'public.events'::regclass)`)
		return h.count(`SELECT count(*) FROM troupe.mapped_tables WHERE name = 'public.events' AND publication LIKE
			(SELECT '% ' || r.oid || ' %' FROM pg_publication_rel r WHERE r.prrelid = 'public.events'::regclass)`) == 1, nil
	})
}
