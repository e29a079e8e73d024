-- Reads the slot. Postgres before 17 has no invalidation_reason and no failover.
SELECT coalesce(plugin, '') AS plugin, coalesce(database, '') AS database, coalesce(database = current_database(), false) AS here,
       coalesce(active_pid, 0) AS active_pid,
       confirmed_flush_lsn::text, coalesce(wal_status, '') AS wal_status,
       coalesce(to_jsonb(s) ->> 'invalidation_reason', '') AS invalidation,
       (to_jsonb(s) ->> 'failover')::boolean AS failover, two_phase
FROM pg_replication_slots s
WHERE slot_name = @slot
