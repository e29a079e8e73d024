-- A failed row that would wait for its next try longer than any wait is from a clock that was ahead: it is due.
UPDATE troupe.outbox_failures
SET next_try = clock_timestamp()
WHERE status <> 'waiting'
  AND status = 'retrying' AND next_try > clock_timestamp() + @longest::interval
