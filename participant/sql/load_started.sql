SELECT topic_id, "offset", starts
FROM troupe.started
WHERE lease_id = @lease
