-- Uses the slot for a moment, and changes nothing in it: from then on the server counts the time for which the slot was idle. It does so if
-- the server has the setting idle_replication_slot_timeout (Postgres 18 and newer), and if no client streams the slot. A slot of another
-- database or program is left alone.
SELECT pg_replication_slot_advance(slot_name, confirmed_flush_lsn)::text
FROM pg_replication_slots
WHERE slot_name = @slot
  AND NOT active
  AND plugin = 'pgoutput'
  AND database = current_database()
  AND wal_status <> 'lost'
  AND confirmed_flush_lsn IS NOT NULL
  AND coalesce(current_setting('idle_replication_slot_timeout', true), '0') <> '0'
