-- Returns the time until permits can be claimed. The start is computed as in claim_rate.sql.
SELECT extract(epoch FROM next_start - clock_timestamp())::float8 - @life::float8 / 2
       + least(0, @spacing::float8 - (s.per + least(s.per / 5, greatest(1, s.per / 60))) / calls)
FROM troupe.rate_limits, extract(epoch FROM span) AS e, LATERAL (SELECT e::float8 AS per) AS s
WHERE consumer_group = @group
  AND handler = @handler
