-- Flows of seven messages over six days, in the days' slots. Of one in 200 payment does not answer.
INSERT INTO troupe.watch_messages (slot, flow, topic, partition, "offset", at, written_at, type, outcome, id, correlation, causation, key)
SELECT extract(epoch FROM at)::bigint / 86400 % 16, 1, 2 + n % 4, i % 12, i, at, at, 6 + n, 1, md5(f || '/' || n)::uuid, md5(f::text)::uuid,
       CASE WHEN n > 0 THEN md5(f || '/' || n - 1)::uuid END, 'o-' || f
FROM generate_series(0, @messages::integer - 1) AS i
CROSS JOIN LATERAL (
  SELECT i / 7 AS f, i % 7 AS n, now() - interval '6 days' * (1 - i / @messages::double precision) AS at) AS m
WHERE n = 0 OR f % 200 > 0
