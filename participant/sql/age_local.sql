-- The entry at @position becomes poison, since it has waited for a handler of its type for too long. Later entries of its key and type have waited
-- for the same time, or since they were written: the statement stores this, so that their wait does not begin only now.
UPDATE troupe.local_work AS w
SET unhandled_since = least(greatest(w.created_at, clock_timestamp() - make_interval(secs => @unhandled_for::float8)), clock_timestamp()),
    error_class     = 'transient',
    last_error      = @error,
    first_failed_at = clock_timestamp(),
    last_failed_at  = clock_timestamp()
WHERE w.consumer_group = @group
  AND w.hold_key = @hold_key
  AND w.position > @position
  AND w.topic = @topic
  AND w.type = @type
  AND w.status = 'pending'
  AND w.attempts = 0
  AND w.unhandled_since IS NULL
