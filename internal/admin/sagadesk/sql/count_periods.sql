-- Counts the sagas of each status that started in each of two periods, up to a limit.
SELECT s.status, later.n, earlier.n
FROM unnest(@statuses::text[]) AS s (status)
CROSS JOIN LATERAL (
  SELECT count(*) AS n
  FROM (
    SELECT
    FROM troupe.sagas AS g
    WHERE g.status = s.status
      AND g.started_at >= @since
    LIMIT @limit) AS counted) AS later
CROSS JOIN LATERAL (
  SELECT count(*) AS n
  FROM (
    SELECT
    FROM troupe.sagas AS g
    WHERE g.status = s.status
      AND g.started_at >= @earlier
      AND g.started_at < @since
    LIMIT @limit) AS counted) AS earlier
