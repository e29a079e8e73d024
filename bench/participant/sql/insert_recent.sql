-- The arrays are in queries of their own, so that the planner does not see how many elements they have: otherwise it would plan the statement for
-- each call.
INSERT INTO troupe.inbox_recent (slot, id, consumer_group, redrive)
SELECT m.slot, m.id, $1, m.redrive
FROM unnest((SELECT $2::smallint[]), (SELECT $3::uuid[]), (SELECT $4::integer[])) AS m (slot, id, redrive)
WHERE NOT EXISTS (
  SELECT FROM troupe.inbox AS i
  WHERE i.consumer_group = $1 AND i.message_id = m.id::text AND i.redrive = m.redrive
  OFFSET 0)
ON CONFLICT DO NOTHING
RETURNING id, redrive
