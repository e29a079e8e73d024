INSERT INTO troupe.rate_limits (consumer_group, handler, next_start, calls, span)
VALUES (@group, @handler, clock_timestamp(), @calls, make_interval(secs => @span::float8))
ON CONFLICT DO NOTHING
