-- Returns an LSN, @needed or else the end of the log on disk, and whether a connected standby does not have the log up to there. Only standbys
-- with a physical slot copy slots (sync_replication_slots).
SELECT needed::text,
       EXISTS (SELECT
               FROM pg_replication_slots
               WHERE slot_type = 'physical'
                 AND active
                 AND restart_lsn < needed) AS lacks
FROM coalesce(@needed::text::pg_lsn, pg_current_wal_flush_lsn()) AS needed
