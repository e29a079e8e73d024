-- Lists the keys that have failed rows, with the number of these rows and the first of them. A row without a key is identified by its
-- id.
SELECT coalesce(order_key, uuid_send(id)), count(*) AS rows, '0/0' AS commit_lsn, min(position) AS lowest
FROM troupe.outbox_failures
GROUP BY 1
