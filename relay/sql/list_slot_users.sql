-- Lists the tables with a mapping whose state was stored with the slot, and when it was stored last. Other tables than @table count if they
-- still exist.
SELECT t.name, t.updated_at
FROM troupe.mapped_tables t
WHERE t.slot = @slot
  AND (t.name = @table
       OR EXISTS (
         SELECT
         FROM pg_class c
         JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = split_part(t.name, '.', 1)
           AND c.relname = substr(t.name, strpos(t.name, '.') + 1)))
