SELECT id, definition, state, wake_at
FROM troupe.sagas
WHERE id = ANY (@ids::text[])
ORDER BY id
FOR UPDATE
