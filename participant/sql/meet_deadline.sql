-- Deletes the row of a deadline whose message is handled. Each service that may send commands to the hop may send such a message, and the id is no
-- secret. So the message must be the one that the row's firing wrote, with its key and its payload, or with the payload of an operator's edit. A
-- relay may have encoded a payload of JSON. The row is locked first, since the transaction that has fired it may not be visible yet.
WITH found AS MATERIALIZED (
  SELECT id, due_at, fired_at, key, key_bytes, payload
  FROM troupe.deadlines
  WHERE consumer_group = @group
    AND scope = @scope
    AND name = @name
    AND id = @id
  FOR UPDATE
)
DELETE FROM troupe.deadlines AS d
USING found AS f
WHERE d.consumer_group = @group
  AND d.scope = @scope
  AND d.name = @name
  AND f.fired_at IS NOT NULL
  AND coalesce(troupe.outbox_order_key(f.key, f.key_bytes), '') = coalesce(@message_key::bytea, '')
  AND (sha256(coalesce(f.payload, '')) = @digest::bytea
    OR @encoded::boolean AND substr(f.payload, 1, 1) <> decode('00', 'hex')
    OR EXISTS (
      SELECT
      FROM troupe.dead_letters AS l
      WHERE l.message_id = f.id::text AND l.consumer_group = @group AND sha256(l.edited_payload) = @digest::bytea))
RETURNING f.due_at
