-- Returns the time until the next deadline is due, the start time of the server that answers, and that server's present time.
SELECT extract(epoch FROM min(due_at) - now())::float8, pg_postmaster_start_time(), now()
FROM troupe.deadlines
WHERE consumer_group = @group
  AND fired_at IS NULL
  AND name = ANY (@names::text[])
  AND due_at BETWEEN coalesce(now() - make_interval(secs => @back::float8), '-infinity') AND now() + make_interval(secs => @ahead::float8)
