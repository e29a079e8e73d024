-- +goose Up

-- outbox_inserted_by returns the transaction of this cluster that inserted a row with the given xid and xmin. A row of a restored
-- dump has the xid of its former cluster: one that this cluster has not assigned yet, or had not when the row was inserted. xmin
-- has 32 bits: the transaction is the highest assigned one with them. A savepoint's xmin is higher than its transaction's xid.
CREATE FUNCTION troupe.outbox_inserted_by(xid xid8, xmin xid) RETURNS xid8
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
  SELECT CASE
    WHEN xid >= pg_snapshot_xmax(pg_current_snapshot()) OR age(xmin) > age(xid::xid)
    THEN (pg_snapshot_xmax(pg_current_snapshot())::text::bigint
          - ((pg_snapshot_xmax(pg_current_snapshot())::text::bigint - xmin::text::bigint) & 4294967295))::text::xid8
    ELSE xid
  END
$$;

-- outbox_status takes the status of a row from its own line, and not from another row's at its position.
CREATE OR REPLACE VIEW troupe.outbox_status AS
SELECT o.position, o.id, o.topic, o.key, o.type, o.created_at,
       CASE
         WHEN t.status IS NOT NULL THEN t.status
         WHEN EXISTS (
           SELECT
           FROM troupe.relay_state s
           WHERE pg_visible_in_snapshot(o.xid, s.published)
              OR pg_visible_in_snapshot(troupe.outbox_inserted_by(o.xid, o.xmin), s.published)) THEN 'done'
         ELSE 'pending'
       END                     AS status,
       coalesce(t.attempts, 0) AS attempts,
       t.max_attempts, t.next_try, t.last_error, t.locked_at
FROM troupe.outbox o
LEFT JOIN troupe.outbox_failures t ON t.position = o.position AND t.id = o.id;
