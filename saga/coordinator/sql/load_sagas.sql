SELECT id, definition, state, wake_at
FROM troupe.sagas
WHERE id = ANY (@ids::text[])
  AND hop = @hop
  AND consumer_group = @group
ORDER BY id
FOR UPDATE
