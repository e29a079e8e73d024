-- Whether a dead letter is the message of a deadline that has fired, and not one that a sender of commands has made.
SELECT EXISTS (
  SELECT
  FROM troupe.deadlines AS d
  JOIN troupe.dead_letters AS l ON l.consumer_group = d.consumer_group AND l.message_id = d.id::text AND l.payload = d.payload
  WHERE d.consumer_group = @group
    AND d.scope = @scope
    AND d.name IN ('apart', 'last')
    AND d.fired_at IS NOT NULL
    AND l.id = @id::uuid)
