-- How many sagas that started since then have each status, up to a limit.
SELECT s.status, n.n
FROM unnest(@statuses::text[]) AS s (status)
CROSS JOIN LATERAL (
  SELECT count(*) AS n
  FROM (
    SELECT
    FROM troupe.sagas AS g
    WHERE g.status = s.status
      AND g.started_at >= @since
    LIMIT @limit) AS counted) AS n
