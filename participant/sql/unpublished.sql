-- Counts the rows of the outbox that no relay publishes, up to 10,000, and returns the age of the oldest in seconds. The count is 0 while a relay has
-- a lease. Rows that are older than the end of the last lease do not count: a relay may have published them, and retention keeps them.
WITH relay AS (
  SELECT count(*) > 0 AS ran, coalesce(bool_or(expires_at > clock_timestamp()), false) AS active, max(expires_at) AS ended
  FROM troupe.relay_leases
  WHERE shard >= 0
), newest AS (
  SELECT created_at
  FROM troupe.outbox
  WHERE (SELECT NOT active FROM relay)
  ORDER BY position DESC
  LIMIT 10000
)
SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8, (SELECT ran FROM relay)
FROM newest
WHERE isfinite(created_at) AND created_at > coalesce((SELECT ended FROM relay), '-infinity')
