-- Advances the slot to its own position, so that the server counts its idle time from now on: restart_lsn and catalog_xmin may
-- move, and no row of the log is passed over. The statement does so if the server has idle_replication_slot_timeout (Postgres 18 and newer), if
-- no client streams the slot, and if it was idle for a tenth of that time: the server reads the log from restart_lsn on. A slot of another
-- database is left alone. The column inactive_since is missing before Postgres 17.
SELECT pg_replication_slot_advance(slot_name, confirmed_flush_lsn)::text
FROM pg_replication_slots AS s
WHERE slot_name = @slot
  AND NOT active
  AND plugin = 'pgoutput'
  AND database = current_database()
  AND wal_status <> 'lost'
  AND confirmed_flush_lsn IS NOT NULL
  AND coalesce(current_setting('idle_replication_slot_timeout', true), '0') <> '0'
  AND (to_jsonb(s) ->> 'inactive_since')::timestamptz < clock_timestamp() - current_setting('idle_replication_slot_timeout', true)::interval / 10
