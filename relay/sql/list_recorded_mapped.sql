-- Returns which of the given rows of a mapped table are recorded as failed rows.
SELECT id
FROM troupe.mapped_failures
WHERE table_name = @table
  AND id = ANY (@ids::uuid[])
