SELECT hash
FROM troupe.saga_definitions
WHERE (@saga = '' OR saga = @saga)
  AND position('"form"' IN definition) > 0
ORDER BY hash
