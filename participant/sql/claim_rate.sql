-- Claims @n permits. next_start is by the limit of the last claim, in calls and span; newRate has the formula of the spacing. If another version
-- with a lower limit has made it, the first permit starts at the own spacing behind the last one of that claim. If it would start later than a
-- claim can make it, a clock was set back.
WITH state AS (
  SELECT consumer_group, handler, waiting_since, clock_timestamp() AS at,
         next_start + make_interval(secs => least(0, @spacing::float8 - (s.per + least(s.per / 5, greatest(1, s.per / 60))) / calls)) AS start
  FROM troupe.rate_limits, extract(epoch FROM span) AS e, LATERAL (SELECT e::float8 AS per) AS s
  WHERE consumer_group = @group
    AND handler = @handler
  FOR UPDATE OF rate_limits
), claim AS (
  SELECT consumer_group, handler, waiting_since, at,
         CASE WHEN start > at + make_interval(secs => @life::float8 + @spacing::float8) THEN at
              ELSE greatest(start, at - make_interval(secs => @life::float8 / 2)) END AS start
  FROM state
)
UPDATE troupe.rate_limits AS l
SET next_start    = c.start + make_interval(secs => @n::int * @spacing::float8),
    calls         = @calls,
    span          = make_interval(secs => @span::float8),
    waiting_since = CASE WHEN @waiting THEN coalesce(c.waiting_since, c.at) END,
    claimed_at    = c.at
FROM claim AS c
WHERE l.consumer_group = c.consumer_group
  AND l.handler = c.handler
  AND c.start <= c.at + make_interval(secs => @life::float8 / 2)
RETURNING extract(epoch FROM c.start - clock_timestamp())::float8
