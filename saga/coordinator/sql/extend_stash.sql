-- Lets events that were stashed before an outage of the coordinator expire later, by the time of the outage, which began at most a minute
-- after the last record of a run. Events that had expired by then stay expired.
UPDATE troupe.saga_stash
SET expires_at = expires_at + make_interval(secs => @seconds::float8)
WHERE saga = ANY (@sagas::text[])
  AND expires_at > clock_timestamp() - make_interval(secs => @seconds::float8)
  AND kept_at < clock_timestamp() - make_interval(secs => @seconds::float8 - 60)
