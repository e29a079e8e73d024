INSERT INTO troupe.outbox (id, topic, key_bytes, type, raw_headers, payload)
VALUES (coalesce(@id::uuid, troupe.uuidv7()), @topic, @key, @type, @headers, @payload)
