SELECT date_bin(make_interval(secs => @seconds), g.started_at, @since) AS at, g.status, count(*), false
FROM troupe.sagas AS g
WHERE g.status = ANY (@statuses::text[])
  AND g.started_at >= @since
GROUP BY 1, 2
ORDER BY 1, 2
