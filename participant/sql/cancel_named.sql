-- As cancel_deadline.sql, for many deadlines. The arrays are as in insert_recent.sql. @limit is the number of deadlines. It shows the planner that
-- they are few, so that the index is used for each, whatever the table's statistics are. The group is a column of the join: as a condition of its own
-- it would let a plan that was made while the table was empty read all deadlines of the group.
DELETE FROM troupe.deadlines AS d
USING (
  SELECT @group::text AS consumer_group, scope, name
  FROM unnest((SELECT @scopes::text[]), (SELECT @names::text[])) AS c (scope, name)
  LIMIT @limit::bigint) AS gone
WHERE d.consumer_group = gone.consumer_group
  AND d.scope = gone.scope
  AND d.name = gone.name
