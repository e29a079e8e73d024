-- Finds out whether a row of troupe.outbox was discarded.
SELECT EXISTS (
  SELECT
  FROM troupe.outbox_repairs
  WHERE row_id = @id
    AND row_position = @position
    AND action = 'discard'
    AND table_name IS NULL) AS found
