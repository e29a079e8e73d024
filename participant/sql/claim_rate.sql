-- Claims @n permits. next_start is the start of the permit that follows the last claimed one. It was computed with the spacing of the limit (calls,
-- span) of that claim; newRate has the formulas. If that limit was lower than the present one, its spacing was longer, and the start is moved back by
-- the difference. If the start is later than either limit allows, a clock was set back, and the claimed permits start now.
WITH locked AS (
  SELECT consumer_group, handler, waiting_since, clock_timestamp() AS at, next_start, calls, extract(epoch FROM span)::float8 AS per
  FROM troupe.rate_limits
  WHERE consumer_group = @group
    AND handler = @handler
  FOR UPDATE
), former AS (
  SELECT *, least(per / 5, greatest(1, per / 60)) AS life, (per + least(per / 5, greatest(1, per / 60))) / calls AS spacing
  FROM locked
), state AS (
  SELECT *, next_start + make_interval(secs => least(0, @spacing::float8 - spacing)) AS start,
         make_interval(secs => greatest(@life::float8 + @spacing::float8, life + spacing)) AS longest
  FROM former
), claim AS (
  SELECT consumer_group, handler, waiting_since, at,
         CASE WHEN start > at + longest THEN at
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
