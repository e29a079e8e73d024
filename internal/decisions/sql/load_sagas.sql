-- Looks each id up by the primary key. With one condition for all ids, a session could plan a scan while the table is small, and keep
-- that plan when it has grown. The array is in a query of its own, so that the planner does not see how many ids there are: otherwise
-- it would plan the statement for each call.
SELECT s.id, s.definition, s.state, s.wake_at, s.owner
FROM (SELECT id FROM unnest((SELECT @ids::text[])) AS i (id) ORDER BY id) AS wanted
CROSS JOIN LATERAL (
  SELECT id, definition, state, wake_at,
         CASE WHEN hop = @hop AND consumer_group = @group THEN '' ELSE hop || ' (group ' || consumer_group || ')' END AS owner
  FROM troupe.sagas
  WHERE id = wanted.id
  LIMIT 1
  FOR UPDATE) AS s
