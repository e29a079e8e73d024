-- As schedule_deadline.sql, for many deadlines. The arrays are as in insert_recent.sql.
INSERT INTO troupe.deadlines AS d (consumer_group, scope, name, id, due_at, key, key_bytes, type, headers, raw_headers, payload)
SELECT @group, scope, name, id, coalesce(at, clock_timestamp() + make_interval(secs => after)),
       CASE WHEN utf8 AND utf8_key IS NOT NULL THEN convert_from(utf8_key, 'UTF8') ELSE key END,
       CASE WHEN utf8 THEN key_bytes ELSE coalesce(key_bytes, utf8_key) END,
       type,
       CASE WHEN utf8 AND utf8_headers IS NOT NULL THEN convert_from(utf8_headers, 'UTF8')::jsonb ELSE headers::jsonb END,
       CASE WHEN utf8 AND utf8_headers IS NOT NULL THEN NULL ELSE raw_headers END,
       payload
FROM unnest((SELECT @scopes::text[]), (SELECT @names::text[]), (SELECT @ids::uuid[]), (SELECT @ats::timestamptz[]),
            (SELECT @afters::float8[]), (SELECT @keys::text[]), (SELECT @key_bytes::bytea[]), (SELECT @types::text[]),
            (SELECT @headers::text[]), (SELECT @raw_headers::bytea[]), (SELECT @payloads::bytea[]), (SELECT @utf8_keys::bytea[]),
            (SELECT @utf8_headers::bytea[]))
  AS n (scope, name, id, at, after, key, key_bytes, type, headers, raw_headers, payload, utf8_key, utf8_headers),
(SELECT getdatabaseencoding() = 'UTF8') AS db (utf8)
ON CONFLICT (consumer_group, scope, name) DO UPDATE
SET id = excluded.id, due_at = excluded.due_at, key = excluded.key, key_bytes = excluded.key_bytes, type = excluded.type,
    headers = excluded.headers, raw_headers = excluded.raw_headers, payload = excluded.payload,
    scheduled_at = excluded.scheduled_at, fired_at = NULL
