-- Schedules a deadline, or replaces it. Text that is not ASCII comes as bytes in UTF-8: see outboxrow.Text.
INSERT INTO troupe.deadlines AS d (consumer_group, scope, name, id, due_at, key, key_bytes, type, headers, raw_headers, payload)
SELECT @group, @scope, @name, @id, coalesce(@at::timestamptz, clock_timestamp() + make_interval(secs => @after::float8)),
       CASE WHEN utf8 AND @utf8_key::bytea IS NOT NULL THEN convert_from(@utf8_key, 'UTF8') ELSE @key END,
       CASE WHEN utf8 THEN @key_bytes::bytea ELSE coalesce(@key_bytes, @utf8_key) END,
       @type,
       CASE WHEN utf8 AND @utf8_headers::bytea IS NOT NULL THEN convert_from(@utf8_headers, 'UTF8')::jsonb ELSE @headers END,
       CASE WHEN utf8 AND @utf8_headers::bytea IS NOT NULL THEN NULL ELSE @raw_headers::bytea END,
       @payload
FROM (SELECT getdatabaseencoding() = 'UTF8') AS db (utf8)
ON CONFLICT (consumer_group, scope, name) DO UPDATE
SET id = excluded.id, due_at = excluded.due_at, key = excluded.key, key_bytes = excluded.key_bytes, type = excluded.type,
    headers = excluded.headers, raw_headers = excluded.raw_headers, payload = excluded.payload,
    scheduled_at = excluded.scheduled_at, fired_at = NULL
