-- Returns the number of the table's lease, and assigns one to a new table.
WITH known AS (
  SELECT shard FROM troupe.mapped_tables WHERE name = @table
), made AS (
  INSERT INTO troupe.mapped_tables (name)
  SELECT @table
  WHERE NOT EXISTS (SELECT FROM known)
  ON CONFLICT (name) DO NOTHING
  RETURNING shard
)
SELECT shard FROM known
UNION ALL
SELECT shard FROM made
