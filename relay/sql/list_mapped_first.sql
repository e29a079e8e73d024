-- Lists the first failed row of each key of a mapped table. A row without a key is identified by its id, as in list_mapped_keys.sql.
SELECT coalesce(t.order_key, uuid_send(t.id)) AS key, t.row
FROM (
  SELECT min(position) AS position
  FROM troupe.mapped_failures
  WHERE table_name = @table
  GROUP BY coalesce(order_key, uuid_send(id))
) AS first
JOIN troupe.mapped_failures t ON t.position = first.position
