DELETE FROM troupe.saga_locks
WHERE saga_id = @id
RETURNING name
