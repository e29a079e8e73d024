-- Sends a message to a retry topic, once for each @step. With the first message of a retry topic, the topic is recorded as the lease of its first
-- partition: so a later version finds the topic even if no member was ever assigned it.
WITH once AS (
  INSERT INTO troupe.inbox (consumer_group, message_id, redrive)
  VALUES (@group, @step, @redrive)
  ON CONFLICT DO NOTHING
  RETURNING 1
), recorded AS (
  INSERT INTO troupe.leases (consumer_group, topic, partition, term, owner, released_at)
  SELECT @group, @topic, 0, 0, '', clock_timestamp()
  FROM once
  ON CONFLICT DO NOTHING
)
INSERT INTO troupe.outbox (id, topic, key_bytes, type, raw_headers, payload)
SELECT coalesce(@id::uuid, troupe.uuidv7()), @topic, @key, @type, @headers, @payload
FROM once
