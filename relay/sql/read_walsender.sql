-- Returns whether the slot's walsender is decoding the log: it waits neither for the client (Client) nor for more log (Activity). It
-- returns no row if the process @pid does not stream the slot.
SELECT coalesce(a.wait_event_type, '') NOT IN ('Activity', 'Client') AS busy
FROM pg_replication_slots s
JOIN pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = @slot
  AND s.active_pid = @pid
