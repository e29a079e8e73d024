-- As list_failed_keys.sql; positions are those of the record, and say nothing of a row that is told.
SELECT coalesce(order_key, uuid_send(id)), count(*) AS rows, 0::bigint AS lowest
FROM troupe.mapped_failures
WHERE table_name = @table
GROUP BY 1
