INSERT INTO troupe.started AS s (lease_id, topic_id, "offset") VALUES (@lease, @topic_id, @offset)
ON CONFLICT (lease_id, topic_id, "offset") DO UPDATE SET starts = s.starts + 1, started_at = clock_timestamp()
RETURNING starts
