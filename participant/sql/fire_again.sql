-- Makes deadlines fire again that fired at least @age seconds ago, since their messages may have been lost, or skipped, before they were read.
-- They have the same ids: of a message that was not lost, one of the two is ignored. A dead letter and a held message have been read.
UPDATE troupe.deadlines AS d
SET fired_at = NULL
WHERE d.consumer_group = @group
  AND d.fired_at <= clock_timestamp() - make_interval(secs => @age::float8)
  AND NOT EXISTS (SELECT FROM troupe.dead_letters AS l WHERE l.consumer_group = d.consumer_group AND l.message_id = d.id::text)
  AND NOT EXISTS (SELECT FROM troupe.held AS h WHERE h.consumer_group = d.consumer_group AND h.message_id = d.id::text)
