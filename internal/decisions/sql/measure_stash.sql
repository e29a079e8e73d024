-- Sums the bytes of the events of one association that each saga may use. find_stash.sql explains the subquery of saga_id.
WITH next AS MATERIALIZED (
  SELECT coalesce(sum(s.bytes), 0) AS bytes
  FROM troupe.saga_stash AS s
  WHERE s.saga = @saga
    AND s.variable = @variable
    AND s.value = @value
    AND s.saga_id = (SELECT '')
    AND s.message_id <> @message
    AND (s.expires_at > least(clock_timestamp(),
                              (SELECT coordinated_at + interval '1 minute' FROM troupe.inbox_groups WHERE consumer_group = @group))
         OR EXISTS (SELECT FROM troupe.saga_associations AS a WHERE a.saga = @saga AND a.variable = @variable AND a.value = @value OFFSET 0))
)
SELECT i.id, next.bytes + coalesce(kept.bytes, 0)
FROM unnest((SELECT @ids::text[])) AS i (id)
CROSS JOIN next
CROSS JOIN LATERAL (
  SELECT sum(s.bytes) AS bytes
  FROM troupe.saga_stash AS s
  WHERE s.saga = @saga
    AND s.variable = @variable
    AND s.value = @value
    AND s.saga_id = i.id
    AND s.message_id <> @message
    AND i.id <> ''
  OFFSET 0) AS kept
