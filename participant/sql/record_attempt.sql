UPDATE troupe.held
SET attempts        = @attempts,
    unhandled_since = CASE WHEN @unhandled
                           THEN coalesce(unhandled_since, clock_timestamp() - make_interval(secs => @unhandled_for::float8)) END,
    max_attempts    = @max_attempts,
    next_try        = clock_timestamp() + make_interval(secs => @wait::float8),
    error_class     = @class,
    last_error      = @error,
    first_failed_at = coalesce(first_failed_at, clock_timestamp()),
    last_failed_at  = clock_timestamp(),
    handler         = @handler,
    hop             = @hop,
    source          = @source,
    letter_headers  = @letter_headers
WHERE consumer_group = @group
  AND topic_id = @topic_id
  AND partition = @partition
  AND "offset" = @offset
  AND position = @position
  AND attempts = @before
