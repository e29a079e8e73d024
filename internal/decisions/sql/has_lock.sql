SELECT NOT EXISTS (
  SELECT FROM troupe.saga_locks AS other
  WHERE other.name = mine.name AND other.position < mine.position)
FROM troupe.saga_locks AS mine
WHERE mine.saga_id = @id
