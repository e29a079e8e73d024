-- Extends the time of each event that was stashed before the outage of the coordinator and had not expired when the outage began. The
-- outage began at most a minute after the last record of a run, which is @seconds ago. An event that had expired stays expired.
UPDATE troupe.saga_stash
SET expires_at = expires_at + make_interval(secs => @seconds::float8)
WHERE saga = ANY (@sagas::text[])
  AND expires_at > clock_timestamp() - make_interval(secs => @seconds::float8)
  AND kept_at < clock_timestamp() - make_interval(secs => @seconds::float8 - 60)
