-- Failed rows by table and topic, the most parked first. Counted up to 100,000 of each kind of table. A topic in Kafka has at most 249
-- characters, and a row may have one of 8 MiB.
SELECT table_name, left(topic, 300) AS topic,
       count(*) FILTER (WHERE status = 'parked')   AS parked,
       count(*) FILTER (WHERE status = 'retrying') AS retrying,
       count(*) FILTER (WHERE status = 'waiting')  AS waiting,
       min(first_failed_at) FILTER (WHERE status <> 'waiting') AS since,
       coalesce(left((array_agg(last_error ORDER BY position) FILTER (WHERE status <> 'waiting'))[1], 2000), '') AS first_error
FROM (
  (SELECT '' AS table_name, topic, status, last_error, first_failed_at, position FROM troupe.outbox_failures LIMIT 100000)
  UNION ALL
  (SELECT table_name, topic, status, last_error, first_failed_at, position FROM troupe.mapped_failures LIMIT 100000)
) AS failed
GROUP BY table_name, failed.topic
ORDER BY parked DESC, retrying DESC, table_name, failed.topic
LIMIT 200
