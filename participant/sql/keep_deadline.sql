INSERT INTO troupe.deadlines (consumer_group, scope, name, id, due_at, key, key_bytes, type, headers, raw_headers, payload)
VALUES (@group, @scope, @name, @id, coalesce(@at::timestamptz, clock_timestamp() + make_interval(secs => @after::float8)),
        @key, @key_bytes, @type, @headers, @raw_headers, @payload)
ON CONFLICT (consumer_group, scope, name) DO NOTHING
