INSERT INTO troupe.started (lease_id, topic_id, "offset")
SELECT @lease, m.topic_id, m."offset"
FROM unnest(@topic_ids::uuid[], @offsets::bigint[]) AS m (topic_id, "offset")
ON CONFLICT DO NOTHING
