-- Makes deadlines fire again that fired at least @age seconds ago, or at any time if @age is null: their messages may have been lost or skipped
-- before they were read. A message that comes again has the same id. So if the first one was not lost, the second one is ignored.
--
-- A deadline whose message is a dead letter or held is left out: the message was read. So a redriven message that is lost is left out, too: its dead
-- letter has the identity that the deadline would have again. A row that another transaction has locked is left out: its message runs, or it is being
-- cancelled. The result is the earliest row, before which the next statement continues, and the number of rows.
WITH lost AS (
  SELECT consumer_group, scope, name, fired_at
  FROM troupe.deadlines AS d
  WHERE consumer_group = @group
    AND fired_at IS NOT NULL
    AND (fired_at, scope, name)
      < (coalesce(@before::timestamptz, now() - make_interval(secs => @age::float8), 'infinity'), @scope::text, @name::text)
    AND NOT EXISTS (SELECT FROM troupe.dead_letters AS l WHERE l.consumer_group = d.consumer_group AND l.message_id = d.id::text)
    AND NOT EXISTS (SELECT FROM troupe.held AS h WHERE h.consumer_group = d.consumer_group AND h.message_id = d.id::text)
  ORDER BY fired_at DESC, scope DESC, name DESC
  LIMIT @limit
  FOR UPDATE OF d SKIP LOCKED
), reset AS (
  UPDATE troupe.deadlines AS d
  SET fired_at = NULL
  FROM lost
  WHERE d.consumer_group = lost.consumer_group
    AND d.scope = lost.scope
    AND d.name = lost.name
)
SELECT fired_at, scope, name, count(*) OVER ()
FROM lost
ORDER BY fired_at, scope, name
LIMIT 1
