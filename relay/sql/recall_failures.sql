-- Makes failed rows due that would wait for longer than @longest: they were recorded while the database's clock was ahead.
UPDATE troupe.outbox_failures
SET next_try = clock_timestamp()
WHERE status = 'retrying' AND next_try > clock_timestamp() + @longest::interval
