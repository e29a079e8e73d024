SELECT hash
FROM troupe.saga_definitions
WHERE (@saga = '' OR saga = @saga)
  AND position('"form"' IN definition::text) > 0
ORDER BY hash
