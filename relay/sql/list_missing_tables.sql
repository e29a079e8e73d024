-- Lists mapped tables that no longer exist and have failed rows, with the number of these rows and the number of parked ones. It reads the
-- catalog, since to_regclass requires rights on the table's schema.
WITH missing AS MATERIALIZED (
  SELECT t.name
  FROM troupe.mapped_tables t
  WHERE NOT EXISTS (
    SELECT
    FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = split_part(t.name, '.', 1)
      AND c.relname = substr(t.name, strpos(t.name, '.') + 1))
)
SELECT m.name, count(*) AS rows, count(*) FILTER (WHERE f.status = 'parked') AS parked
FROM missing m
JOIN troupe.mapped_failures f ON f.table_name = m.name
GROUP BY m.name
ORDER BY m.name
