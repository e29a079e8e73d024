-- The entry at @position becomes poison, since it has waited for a handler of its type for too long. The statement stores the same wait for later
-- entries of its key and type, but at most the time since they were written. Otherwise their own wait would begin only now.
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
