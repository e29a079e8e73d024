-- The slots of synchronized_standby_slots, if the session @pid waits until their standbys have a part of the log, and of these the
-- physical slots that a standby streams. No row: it does not wait for a standby. Postgres 17 and newer.
SELECT coalesce(current_setting('synchronized_standby_slots', true), '') AS named,
       ARRAY(SELECT slot_name::text FROM pg_replication_slots WHERE slot_type = 'physical' AND active) AS streamed,
       ARRAY(SELECT slot_name::text FROM pg_replication_slots WHERE slot_type = 'physical' AND NOT active) AS idle
FROM pg_stat_activity
WHERE pid = @pid
  AND wait_event = 'WaitForStandbyConfirmation'
