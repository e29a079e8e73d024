-- As list_troubled_keys.sql.
SELECT coalesce(order_key, uuid_send(id)), count(*) AS rows
FROM troupe.mapped_trouble
WHERE table_name = @table
GROUP BY 1
