-- Stores a failed run of the entry at @position, which then waits for its next try. Entries behind it that were claimed with it become pending again.
UPDATE troupe.local_work AS w
SET status          = 'pending',
    attempts        = CASE WHEN w.position = @position THEN @attempts ELSE w.attempts END,
    max_attempts    = CASE WHEN w.position = @position THEN @max_attempts ELSE w.max_attempts END,
    unhandled_since = CASE WHEN w.position <> @position THEN w.unhandled_since
                           WHEN @unhandled THEN coalesce(w.unhandled_since, clock_timestamp()) END,
    error_class     = CASE WHEN w.position = @position THEN @class ELSE w.error_class END,
    last_error      = CASE WHEN w.position = @position THEN @error ELSE w.last_error END,
    first_failed_at = CASE WHEN w.position = @position THEN coalesce(w.first_failed_at, clock_timestamp()) ELSE w.first_failed_at END,
    last_failed_at  = CASE WHEN w.position = @position THEN clock_timestamp() ELSE w.last_failed_at END,
    next_try        = CASE WHEN w.position = @position THEN clock_timestamp() + make_interval(secs => @wait::float8) END,
    handler         = CASE WHEN w.position = @position THEN @handler ELSE w.handler END,
    hop             = CASE WHEN w.position = @position THEN @hop ELSE w.hop END,
    source          = CASE WHEN w.position = @position THEN @source ELSE w.source END,
    letter_headers  = CASE WHEN w.position = @position THEN @letter_headers ELSE w.letter_headers END,
    crashes         = CASE WHEN w.position = @position THEN 0 ELSE w.crashes END,
    locked_at       = NULL,
    locked_by       = NULL
WHERE w.consumer_group = @group
  AND w.position = ANY (@positions::bigint[])
  AND w.term = (@terms::integer[])[array_position(@positions, w.position)]
  AND w.status = 'in progress'
