-- Which of the given rows of a mapped table are recorded as rows in trouble.
SELECT id
FROM troupe.mapped_trouble
WHERE table_name = @table
  AND id = ANY (@ids::uuid[])
