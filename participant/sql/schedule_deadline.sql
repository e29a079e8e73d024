INSERT INTO troupe.deadlines AS d (consumer_group, scope, name, id, due_at, key, key_bytes, type, headers, raw_headers, payload)
VALUES (@group, @scope, @name, @id, coalesce(@at::timestamptz, clock_timestamp() + make_interval(secs => @after::float8)),
        @key, @key_bytes, @type, @headers, @raw_headers, @payload)
ON CONFLICT (consumer_group, scope, name) DO UPDATE
SET id = excluded.id, due_at = excluded.due_at, key = excluded.key, key_bytes = excluded.key_bytes, type = excluded.type,
    headers = excluded.headers, raw_headers = excluded.raw_headers, payload = excluded.payload,
    scheduled_at = excluded.scheduled_at, fired_at = NULL
