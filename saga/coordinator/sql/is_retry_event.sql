-- Reports whether a dead letter is the message of a deadline with a RetryEvent that has fired. A sender of commands could send a copy of
-- this message. A copy with the same key is handled after the message, and a copy with another key is recognised by its key.
SELECT EXISTS (
  SELECT
  FROM troupe.deadlines AS d
  JOIN troupe.dead_letters AS l ON l.consumer_group = d.consumer_group AND l.message_id = d.id::text AND l.payload = d.payload
    AND coalesce(l.key, '') = coalesce(troupe.outbox_order_key(d.key, d.key_bytes), '')
  WHERE d.consumer_group = @group
    AND d.scope = @scope
    AND d.name IN ('retry-event', 'last-retry')
    AND d.fired_at IS NOT NULL
    AND l.id = @id::uuid)
