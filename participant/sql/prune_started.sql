DELETE FROM troupe.started
WHERE lease_id = @lease
  AND started_at < clock_timestamp() - interval '1 day'
