-- Lists the existing slots other than @slot from which table @table, or a table that no longer exists, was streamed. Slots of @table come
-- first. Postgres before 17 has no invalidation_reason.
SELECT t.name, t.slot, coalesce(s.wal_status, '') = 'lost' AS lost, coalesce(to_jsonb(s) ->> 'invalidation_reason', '') AS invalidation,
       coalesce(t.lsn::text, '0/0') AS lsn, t.updated_at
FROM troupe.mapped_tables t
JOIN pg_replication_slots s ON s.slot_name = t.slot
WHERE s.database = current_database()
  AND s.plugin = 'pgoutput'
  AND s.slot_name <> @slot
  AND t.source = 'wal'
  AND NOT EXISTS (SELECT FROM troupe.mapped_tables o WHERE o.slot = t.slot AND o.updated_at > t.updated_at) -- the slot is o's by now
  AND (t.name = @table
       OR NOT EXISTS (
         SELECT
         FROM pg_class c
         JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = split_part(t.name, '.', 1)
           AND c.relname = substr(t.name, strpos(t.name, '.') + 1)))
ORDER BY t.name <> @table, t.name
