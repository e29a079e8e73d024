WITH once AS (
  INSERT INTO troupe.inbox (consumer_group, message_id, redrive)
  VALUES (@group, @step, @redrive)
  ON CONFLICT DO NOTHING
  RETURNING 1)
INSERT INTO troupe.outbox (id, topic, key_bytes, type, raw_headers, payload)
SELECT coalesce(@id::uuid, troupe.uuidv7()), @topic, @key, @type, @headers, @payload
FROM once
