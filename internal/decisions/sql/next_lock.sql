SELECT saga_id
FROM troupe.saga_locks
WHERE name = @name
ORDER BY position
LIMIT 1
