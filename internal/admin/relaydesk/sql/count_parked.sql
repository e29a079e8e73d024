-- The number of parked rows of a topic of an outbox.
SELECT count(*)
FROM (
  SELECT 1 FROM troupe.outbox_failures WHERE @table::text = '' AND status = 'parked' AND topic = @topic
  UNION ALL
  SELECT 1 FROM troupe.mapped_failures WHERE table_name = @table AND status = 'parked' AND topic = @topic
) AS parked
