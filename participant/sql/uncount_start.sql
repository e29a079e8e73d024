-- Subtracts the last start of messages whose run has ended without an attempt: that run did not end the process. It does nothing if a new owner has
-- the lease, since that owner may have started the messages.
WITH ended AS MATERIALIZED (
  SELECT m.topic_id, m."offset"
  FROM unnest(@topic_ids::uuid[], @offsets::bigint[]) AS m (topic_id, "offset")
  WHERE EXISTS (SELECT FROM troupe.leases WHERE id = @lease AND term = @term)
), lowered AS (
  UPDATE troupe.started AS s
  SET starts = s.starts - 1
  FROM ended AS e
  WHERE s.lease_id = @lease
    AND s.topic_id = e.topic_id
    AND s."offset" = e."offset"
    AND s.starts > 1
)
DELETE FROM troupe.started AS s
USING ended AS e
WHERE s.lease_id = @lease
  AND s.topic_id = e.topic_id
  AND s."offset" = e."offset"
  AND s.starts = 1
