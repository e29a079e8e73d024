-- Returns the events that are kept for a saga.
SELECT saga, variable, value, event, saga_id, shared, position
FROM troupe.saga_stash
WHERE saga_id = @id
  AND saga_id <> '' -- as the index
