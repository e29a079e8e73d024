-- Behind what rows wait, and how many stand there. A row without a key is known by its id.
SELECT coalesce(order_key, uuid_send(id)), count(*) AS rows
FROM troupe.outbox_trouble
GROUP BY 1
