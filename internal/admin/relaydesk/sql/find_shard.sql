-- The number of a mapped table's lease.
SELECT shard
FROM troupe.mapped_tables
WHERE name = @table
