-- Removes the failures of rows that are published now, if the term is still ours.
WITH lease AS MATERIALIZED (
  SELECT term
  FROM troupe.relay_leases
  WHERE shard = @shard
    AND holder = @holder
    AND term = @term
    AND expires_at > clock_timestamp()
  FOR SHARE
), cured AS (
  DELETE FROM troupe.outbox_failures t
  USING unnest(@positions::bigint[], @ids::uuid[]) AS acked (position, id)
  WHERE t.position = acked.position
    AND t.id = acked.id
    AND EXISTS (SELECT FROM lease)
)
SELECT count(*) AS held
FROM lease
