-- Reads the state of the slot and how much log the server keeps for it. Postgres before 17 has no inactive_since.
SELECT active, coalesce(wal_status, '') AS wal_status,
       coalesce(to_jsonb(s) ->> 'invalidation_reason', '') AS invalidation,
       coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint         AS retained,
       coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn), 0)::bigint AS unconfirmed,
       safe_wal_size,
       (to_jsonb(s) ->> 'inactive_since')::timestamptz AS inactive_since
FROM pg_replication_slots s
WHERE slot_name = @slot
