-- A deadline that is there is kept, unless it has fired and the dead letter of its message was discarded: then it is not
-- handled again, and the new one takes its row.
WITH replaced AS (
  UPDATE troupe.deadlines AS d
  SET id = @id, due_at = coalesce(@at::timestamptz, clock_timestamp() + make_interval(secs => @after::float8)), key = @key,
      key_bytes = @key_bytes, type = @type, headers = @headers, raw_headers = @raw_headers, payload = @payload,
      scheduled_at = clock_timestamp(), fired_at = NULL
  WHERE d.consumer_group = @group
    AND d.scope = @scope
    AND d.name = @name
    AND d.fired_at IS NOT NULL
    AND EXISTS (
      SELECT FROM troupe.dead_letters AS l
      WHERE l.message_id = d.id::text AND l.consumer_group = @group AND l.status = 'discarded')
  RETURNING d.id
)
INSERT INTO troupe.deadlines (consumer_group, scope, name, id, due_at, key, key_bytes, type, headers, raw_headers, payload)
SELECT @group, @scope, @name, @id, coalesce(@at, clock_timestamp() + make_interval(secs => @after)),
       @key, @key_bytes, @type, @headers, @raw_headers, @payload
WHERE NOT EXISTS (SELECT FROM replaced)
ON CONFLICT (consumer_group, scope, name) DO NOTHING
