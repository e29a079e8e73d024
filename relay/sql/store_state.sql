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
INSERT INTO troupe.relay_state AS s (slot, source, system_id, timeline, published, sweep, lsn, publication)
SELECT @slot, @source, @system_id, @timeline, @published::pg_snapshot, @sweep::pg_snapshot, @lsn::pg_lsn, @publication::text
FROM lease
ON CONFLICT (slot) DO UPDATE
SET source      = excluded.source,
    system_id   = excluded.system_id,
    timeline    = excluded.timeline,
    published   = excluded.published,
    sweep       = excluded.sweep,
    lsn         = excluded.lsn,
    publication = excluded.publication,
    updated_at  = clock_timestamp()
