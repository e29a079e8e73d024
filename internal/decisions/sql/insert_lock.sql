INSERT INTO troupe.saga_locks (name, saga_id)
VALUES (@name, @id)
ON CONFLICT (saga_id) DO NOTHING
