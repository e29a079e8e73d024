-- As cancel_deadline.sql, of many. The arrays are as in insert_recent.sql; the limit, which is all of them, tells the planner
-- that they are few, so that it looks each up whatever it knows of the table. By all of its key: with the group as a
-- condition of its own a plan made while the table is empty reads all of the group's.
DELETE FROM troupe.deadlines AS d
USING (
  SELECT @group::text AS consumer_group, scope, name
  FROM unnest((SELECT @scopes::text[]), (SELECT @names::text[])) AS c (scope, name)
  LIMIT @limit::bigint) AS gone
WHERE d.consumer_group = gone.consumer_group
  AND d.scope = gone.scope
  AND d.name = gone.name
