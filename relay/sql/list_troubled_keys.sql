-- Behind what rows wait, and how many stand there.
SELECT order_key, count(*) AS rows
FROM troupe.outbox_trouble
GROUP BY order_key
