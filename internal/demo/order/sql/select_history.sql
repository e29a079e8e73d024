SELECT version, at, what, coalesce(step, ''), coalesce(why, '')
FROM troupe.saga_log
WHERE saga_id = @saga_id
ORDER BY version, number
