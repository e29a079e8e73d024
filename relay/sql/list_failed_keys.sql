-- The blocked keys, with the number of their failed rows and the first of these. A row without a key is identified by its id.
SELECT coalesce(order_key, uuid_send(id)), count(*) AS rows, '0/0' AS commit_lsn, min(position) AS lowest
FROM troupe.outbox_failures
GROUP BY 1
