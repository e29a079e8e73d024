-- Inserts a deadline, unless it exists. An existing one that has fired, and whose dead letter was discarded, is replaced: it will not be handled any
-- more. The columns are as in schedule_deadline.sql.
WITH n AS (
  SELECT coalesce(@at::timestamptz, clock_timestamp() + make_interval(secs => @after::float8)) AS due_at,
         CASE WHEN utf8 AND @utf8_key::bytea IS NOT NULL THEN convert_from(@utf8_key, 'UTF8') ELSE @key END AS key,
         CASE WHEN utf8 THEN @key_bytes::bytea ELSE coalesce(@key_bytes, @utf8_key) END AS key_bytes,
         CASE WHEN utf8 AND @utf8_headers::bytea IS NOT NULL THEN convert_from(@utf8_headers, 'UTF8')::jsonb ELSE @headers END AS headers,
         CASE WHEN utf8 AND @utf8_headers::bytea IS NOT NULL THEN NULL ELSE @raw_headers::bytea END AS raw_headers
  FROM (SELECT getdatabaseencoding() = 'UTF8') AS db (utf8)
), replaced AS (
  UPDATE troupe.deadlines AS d
  SET id = @id, due_at = n.due_at, key = n.key, key_bytes = n.key_bytes, type = @type, headers = n.headers, raw_headers = n.raw_headers,
      payload = @payload, scheduled_at = clock_timestamp(), fired_at = NULL
  FROM n
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
SELECT @group, @scope, @name, @id, n.due_at, n.key, n.key_bytes, @type, n.headers, n.raw_headers, @payload
FROM n
WHERE NOT EXISTS (SELECT FROM replaced)
ON CONFLICT (consumer_group, scope, name) DO NOTHING
