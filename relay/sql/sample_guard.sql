-- As read_guard.sql. It also stores the size of the retained log once a minute, for the console's history of a day.
WITH seen AS MATERIALIZED (
  SELECT active, coalesce(wal_status, '') AS wal_status,
         coalesce(to_jsonb(s) ->> 'invalidation_reason', '') AS invalidation,
         coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint         AS retained,
         coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn), 0)::bigint AS unconfirmed,
         safe_wal_size,
         (to_jsonb(s) ->> 'inactive_since')::timestamptz AS inactive_since
  FROM pg_replication_slots s
  WHERE slot_name = @slot
), sampled AS (
  INSERT INTO troupe.relay_slot_samples AS r (shard, minute, at, slot, retained)
  SELECT @shard, (extract(epoch FROM date_trunc('minute', clock_timestamp()))::bigint / 60) % 1440,
         date_trunc('minute', clock_timestamp()), @slot, retained
  FROM seen
  ON CONFLICT (shard, minute) DO UPDATE
  SET at       = excluded.at,
      slot     = excluded.slot,
      retained = excluded.retained
  WHERE r.at < excluded.at
)
SELECT active, wal_status, invalidation, retained, unconfirmed, safe_wal_size, inactive_since
FROM seen
