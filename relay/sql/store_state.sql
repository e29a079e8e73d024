-- Stores the state, if the term is still ours. The state is on disk before the statement returns, whatever the role's synchronous_commit
-- is: next the relay confirms the LSN of the state to the server, and the server may write the slot to disk at once.
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
INSERT INTO troupe.relay_state AS s (slot, source, system_id, timeline, published, sweep, lsn, publication, updated_at)
SELECT @slot, @source, @system_id, @timeline, @published::pg_snapshot, @sweep::pg_snapshot, @lsn::pg_lsn, @publication::text,
       -- This state is the newest, also where another server's clock was ahead.
       greatest(clock_timestamp(), (SELECT max(updated_at) + interval '1 microsecond' FROM troupe.relay_state WHERE slot <> @slot))
FROM lease
ON CONFLICT (slot) DO UPDATE
SET source      = excluded.source,
    system_id   = excluded.system_id,
    timeline    = excluded.timeline,
    published   = excluded.published,
    sweep       = excluded.sweep,
    lsn         = excluded.lsn,
    publication = excluded.publication,
    updated_at  = excluded.updated_at
