DELETE FROM troupe.started AS s
USING unnest(@topic_ids::uuid[], @offsets::bigint[]) AS m (topic_id, "offset")
WHERE s.lease_id = @lease
  AND s.topic_id = m.topic_id
  AND s."offset" = m."offset"
