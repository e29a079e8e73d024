-- Returns the hashes of the definitions with a form, the smallest first, as long as they take at most so many bytes in memory. Of each,
-- the estimate is @each bytes, and @byte for each byte of its text.
SELECT f.hash
FROM (
  SELECT hash, sum(@each::bigint + @byte::bigint * octet_length(definition)) OVER (ORDER BY octet_length(definition), hash) AS bytes
  FROM troupe.saga_definitions
  WHERE (@saga = '' OR saga = @saga)
    AND position('"form"' IN definition) > 0) AS f
WHERE f.bytes <= @bytes::bigint
ORDER BY f.hash
