-- As store_state.sql, for a mapped table.
WITH lease AS MATERIALIZED (
  SELECT term, set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'local'
                                                ELSE current_setting('synchronous_commit') END, true)
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
