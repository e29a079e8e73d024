UPDATE troupe.joins
SET status = 'expired', ended_at = now(), forget_at = now() + make_interval(secs => @retention::float8)
WHERE consumer_group = @group
  AND name = @name
  AND key = @key
  AND status = 'open'
RETURNING true
