-- Returns one row if the session @pid waits for standbys (Postgres 17 and newer), otherwise none. The row has the setting
-- synchronized_standby_slots, the physical slots that a standby streams, and the other physical slots.
SELECT coalesce(current_setting('synchronized_standby_slots', true), '') AS named,
       ARRAY(SELECT slot_name::text FROM pg_replication_slots WHERE slot_type = 'physical' AND active) AS streamed,
       ARRAY(SELECT slot_name::text FROM pg_replication_slots WHERE slot_type = 'physical' AND NOT active) AS idle
FROM pg_stat_activity
WHERE pid = @pid
  AND wait_event = 'WaitForStandbyConfirmation'
