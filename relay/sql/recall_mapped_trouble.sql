-- As in recall_trouble.sql.
UPDATE troupe.mapped_trouble
SET next_try = clock_timestamp()
WHERE table_name = @table
  AND status = 'retrying' AND next_try > clock_timestamp() + @longest::interval
