-- +goose Up

-- Retention counts from here: the database's clock, so that neither a restart of the relay nor a row's own time moves it.
ALTER TABLE troupe.outbox_partitions
  ADD COLUMN done_at timestamptz; -- when nobody could write there any more and every row was published; null: not yet

-- Every entry with its status. Under poll an entry that was published is gone; under WAL it is done until its partition
-- is dropped. A failed row is not done, although a snapshot sees it.
CREATE OR REPLACE VIEW troupe.outbox_status AS
SELECT o.position, o.id, o.topic, o.key, o.type, o.created_at,
       CASE
         WHEN t.status IS NOT NULL THEN t.status
         WHEN EXISTS (SELECT FROM troupe.relay_state s WHERE pg_visible_in_snapshot(o.xid, s.published)) THEN 'done'
         ELSE 'pending'
       END                     AS status,
       coalesce(t.attempts, 0) AS attempts,
       t.max_attempts, t.next_try, t.last_error, t.locked_at
FROM troupe.outbox o
LEFT JOIN troupe.outbox_failures t USING (position);
