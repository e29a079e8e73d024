-- Extends the events that were kept before the outage. It began at most a minute after the coordinator was last seen. Events that had
-- expired then stay expired.
UPDATE troupe.saga_stash
SET expires_at = expires_at + make_interval(secs => @seconds::float8)
WHERE saga = ANY (@sagas::text[])
  AND expires_at > clock_timestamp() - make_interval(secs => @seconds::float8)
  AND kept_at < clock_timestamp() - make_interval(secs => @seconds::float8 - 60)
