-- Ended sagas in the order of their start, which has an index. A saga that another transaction has locked is left for the next pass.
SELECT started_at, id
FROM troupe.sagas
WHERE status = @status
  AND (started_at, id) > (@after_at, @after_id)
  AND started_at < @before
  AND ended_at < @before
ORDER BY started_at, id
LIMIT @limit
FOR UPDATE SKIP LOCKED
