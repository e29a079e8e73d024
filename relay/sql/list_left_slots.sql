-- Lists the slots other than @slot from which troupe.outbox was streamed, and that no relay reads now.
SELECT s.slot_name, coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn), 0)::bigint AS retained
FROM pg_replication_slots s
JOIN troupe.relay_state r ON r.slot = s.slot_name
WHERE s.database = current_database()
  AND s.plugin = 'pgoutput'
  AND NOT s.active
  AND s.slot_name <> @slot
  AND r.source = 'wal'
  AND r.system_id = (SELECT system_identifier::text FROM pg_control_system())
  AND NOT EXISTS (SELECT FROM troupe.relay_leases l WHERE l.slot = s.slot_name AND l.shard <> 0)
ORDER BY s.slot_name
