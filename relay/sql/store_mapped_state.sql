-- If the term still is ours.
WITH lease AS MATERIALIZED (
  SELECT term
  FROM troupe.relay_leases
  WHERE shard = @shard
    AND holder = @holder
    AND term = @term
    AND expires_at > clock_timestamp()
  FOR SHARE
)
UPDATE troupe.mapped_tables
SET source      = @source,
    system_id   = @system_id,
    timeline    = @timeline,
    published   = @published::pg_snapshot,
    sweep       = @sweep::pg_snapshot,
    lsn         = @lsn::pg_lsn,
    publication = @publication::text,
    slot        = @slot,
    updated_at  = clock_timestamp()
WHERE name = @table
  AND EXISTS (SELECT FROM lease)
