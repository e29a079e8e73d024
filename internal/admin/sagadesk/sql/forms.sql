-- Returns the hashes of the definitions with a form that sagas of these statuses have, the smallest ones that take at most so many bytes in
-- memory, and the number of the others. Of each, the estimate is @each bytes, and @byte for each byte of its text.
SELECT coalesce(array_agg(f.hash ORDER BY f.hash) FILTER (WHERE f.bytes <= @bytes::bigint), '{}'), count(*) FILTER (WHERE f.bytes > @bytes::bigint)
FROM (
  SELECT hash, sum(@each::bigint + @byte::bigint * octet_length(definition)) OVER (ORDER BY octet_length(definition), hash) AS bytes
  FROM troupe.saga_definitions
  WHERE (@saga = '' OR saga = @saga)
    AND position('"form"' IN definition) > 0
    AND hash IN (
      SELECT definition
      FROM troupe.sagas
      WHERE status = ANY (@statuses::text[])
        AND steps <> ''
        AND (@saga = '' OR saga = @saga))) AS f
