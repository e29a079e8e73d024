-- What slots keep from the server. Inactive_since is of Postgres 17 and newer.
SELECT slot_name, active, coalesce(wal_status, '') AS wal_status,
       coalesce(pg_wal_lsn_diff(now_at, restart_lsn), 0)::bigint         AS retained,
       coalesce(pg_wal_lsn_diff(now_at, confirmed_flush_lsn), 0)::bigint AS unconfirmed,
       safe_wal_size, (to_jsonb(s) ->> 'inactive_since')::timestamptz AS inactive_since
FROM pg_replication_slots s,
     (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END AS now_at) AS here
WHERE slot_name = ANY (@slots)
