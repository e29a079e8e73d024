-- Failed rows by table and topic, the most parked first, at most 200 topics of a table. The topics of troupe.outbox come first, so that the
-- relay of another table hides none of them. Counted up to 100,000 of each table. A topic in Kafka has at most 249 characters, and a row
-- may have one of 8 MiB.
SELECT table_name, topic, parked, retrying, waiting, since, first_error
FROM (
  SELECT table_name, left(topic, 300) AS topic, parked, retrying, waiting, since, first_error,
         row_number() OVER (PARTITION BY table_name ORDER BY parked DESC, retrying DESC, topic) AS number
  FROM (
    SELECT table_name, topic,
           count(*) FILTER (WHERE status = 'parked')   AS parked,
           count(*) FILTER (WHERE status = 'retrying') AS retrying,
           count(*) FILTER (WHERE status = 'waiting')  AS waiting,
           min(first_failed_at) FILTER (WHERE status <> 'waiting') AS since,
           coalesce(left((array_agg(last_error ORDER BY position) FILTER (WHERE status <> 'waiting'))[1], 2000), '') AS first_error
    FROM (
      (SELECT '' AS table_name, topic, status, last_error, first_failed_at, position FROM troupe.outbox_failures LIMIT 100000)
      UNION ALL
      (SELECT m.name, f.topic, f.status, f.last_error, f.first_failed_at, f.position
       FROM troupe.mapped_tables AS m
       CROSS JOIN LATERAL (SELECT * FROM troupe.mapped_failures AS t WHERE t.table_name = m.name LIMIT 100000) AS f)
    ) AS failed
    GROUP BY table_name, topic
  ) AS counted
) AS numbered
WHERE number <= 200
ORDER BY table_name <> '', parked DESC, retrying DESC, table_name, topic
LIMIT 1000
