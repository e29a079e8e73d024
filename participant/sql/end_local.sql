-- Ends the entries that the caller still owns in this transaction. They end as failed if there is an error, else as done.
UPDATE troupe.local_work AS w
SET status          = CASE WHEN @error::text IS NULL THEN 'done' ELSE 'failed' END,
    attempts        = @attempts,
    max_attempts    = coalesce(@max_attempts, w.max_attempts),
    error_class     = @class,
    last_error      = @error,
    first_failed_at = CASE WHEN @error IS NOT NULL THEN coalesce(w.first_failed_at, clock_timestamp()) END,
    last_failed_at  = CASE WHEN @error IS NOT NULL THEN clock_timestamp() END,
    unhandled_since = NULL,
    next_try        = NULL,
    locked_at       = NULL,
    locked_by       = NULL,
    ended_at        = clock_timestamp()
WHERE w.consumer_group = @group
  AND w.position = ANY (@positions::bigint[])
  AND w.term = (@terms::integer[])[array_position(@positions, w.position)]
  AND w.status = 'in progress'
RETURNING w.position
