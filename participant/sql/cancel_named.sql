-- As cancel_deadline.sql, of many. The arrays are as in insert_recent.sql; the limit, which is all of them, tells the planner
-- that they are few, so that it looks each up whatever it knows of the table.
DELETE FROM troupe.deadlines AS d
USING (
  SELECT scope, name
  FROM unnest((SELECT @scopes::text[]), (SELECT @names::text[])) AS c (scope, name)
  LIMIT @limit::bigint) AS gone
WHERE d.consumer_group = @group
  AND d.scope = gone.scope
  AND d.name = gone.name
