-- A version before stored the step without the source of the message: such a row counts for every source.
WITH once AS (
  INSERT INTO troupe.inbox (consumer_group, message_id, redrive)
  SELECT @group::text, @step::text, @redrive::integer
  WHERE NOT EXISTS (
    SELECT FROM troupe.inbox WHERE consumer_group = @group AND message_id = @bare_step AND redrive = @redrive)
  ON CONFLICT DO NOTHING
  RETURNING 1)
INSERT INTO troupe.outbox (id, topic, key_bytes, type, raw_headers, payload)
SELECT coalesce(@id::uuid, troupe.uuidv7()), @topic, @key, @type, @headers, @payload
FROM once
