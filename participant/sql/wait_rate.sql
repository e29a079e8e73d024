SELECT extract(epoch FROM next_start - clock_timestamp())::float8 - @life::float8 / 2
FROM troupe.rate_limits
WHERE consumer_group = @group
  AND handler = @handler
