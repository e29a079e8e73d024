SELECT hash
FROM troupe.saga_definitions
WHERE (@saga = '' OR saga = @saga)
  AND octet_length(definition) <= 1048576 -- a longer text is no definition
  AND position('"form"' IN definition) > 0
ORDER BY hash
