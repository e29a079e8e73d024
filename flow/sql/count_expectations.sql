-- Counts expectations by name and status. Each part of the UNION reads one index, so that expectations met in time are not read.
SELECT name,
       count(*) FILTER (WHERE missed_at IS NULL AND raised_at IS NULL) AS waiting,
       count(*) FILTER (WHERE (missed_at IS NOT NULL OR raised_at IS NOT NULL) AND met_at IS NULL) AS missing,
       count(*) FILTER (WHERE missed_at IS NOT NULL AND met_at IS NOT NULL) AS late,
       count(*) FILTER (WHERE alert_at IS NOT NULL) AS alerts,
       coalesce(extract(epoch FROM now() - min(due_at) FILTER (WHERE met_at IS NULL AND due_at <= now())), 0)::float8 AS overdue
FROM (
  SELECT name, missed_at, raised_at, met_at, alert_at, due_at
  FROM troupe.expectations
  WHERE consumer_group = @group
    AND missed_at IS NOT NULL
  UNION ALL
  SELECT name, missed_at, raised_at, met_at, alert_at, due_at
  FROM troupe.expectations
  WHERE consumer_group = @group
    AND missed_at IS NULL
    AND (met_at IS NULL OR raised_at IS NOT NULL)
) AS e
GROUP BY name
ORDER BY name
