-- Deletes the failure records of rows that are published now, if the term is still ours. The delete is on disk before the statement
-- returns, whatever the role's synchronous_commit is. If a crash of the server lost it, the rows would be published again.
WITH lease AS MATERIALIZED (
  SELECT term, set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'local'
                                                ELSE current_setting('synchronous_commit') END, true)
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
