-- Each stretch in 16 pieces, and of each piece one time of which the piece is k times as long. Where in the piece that is
-- seems random, so that it is not in step with what starts sagas at full minutes, and is the same the next time.
SELECT date_bin(make_interval(secs => @seconds), p.at, @since) AS at, s.status, round(sum(n.n) * k.k)::bigint, true
FROM unnest(@statuses::text[]) AS s (status)
CROSS JOIN (SELECT greatest(8, reltuples / 100000)::float8 AS k FROM pg_class WHERE oid = 'troupe.sagas'::regclass) AS k
CROSS JOIN generate_series(@since::timestamptz, now(), make_interval(secs => @seconds / 16)) AS p (at)
CROSS JOIN LATERAL (
  SELECT p.at + make_interval(secs => @seconds / 16 * (1 - 1 / k.k) * (hashint8(extract(epoch FROM p.at)::bigint)::bigint + 2147483648) / 4294967296) AS at) AS t
CROSS JOIN LATERAL (
  SELECT count(*) AS n
  FROM troupe.sagas AS g
  WHERE g.status = s.status
    AND g.started_at >= t.at
    AND g.started_at < t.at + make_interval(secs => @seconds / 16 / k.k)) AS n
WHERE n.n > 0
GROUP BY 1, 2, k.k
ORDER BY 1, 2
