-- Makes failed rows due that would wait longer than the longest wait: they were recorded while the database's clock was ahead.
UPDATE troupe.outbox_failures
SET next_try = clock_timestamp()
WHERE status = 'retrying' AND next_try > clock_timestamp() + @longest::interval
