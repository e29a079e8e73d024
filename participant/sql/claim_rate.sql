-- Claims @n permits. If next_start is further ahead than a claim can leave it, a clock that was set back or a lower rate has written it.
UPDATE troupe.rate_limits
SET next_start    = CASE WHEN next_start > clock_timestamp() + make_interval(secs => @life::float8 / 2 + @most::int * @spacing::float8)
                         THEN clock_timestamp()
                         ELSE greatest(next_start, clock_timestamp() - make_interval(secs => @life::float8 / 2)) END
                    + make_interval(secs => @n::int * @spacing::float8),
    calls         = @calls,
    span          = make_interval(secs => @span::float8),
    waiting_since = CASE WHEN @waiting THEN coalesce(waiting_since, clock_timestamp()) END,
    claimed_at    = clock_timestamp()
WHERE consumer_group = @group
  AND handler = @handler
  AND (next_start <= clock_timestamp() + make_interval(secs => @life::float8 / 2)
    OR next_start > clock_timestamp() + make_interval(secs => @life::float8 / 2 + @most::int * @spacing::float8))
RETURNING extract(epoch FROM next_start - clock_timestamp())::float8 - @n::int * @spacing::float8
