-- The arrays are in queries of their own: see insert_recent.sql. A version before stored an id without its source: such a
-- row counts for every source, as long as it is kept.
INSERT INTO troupe.inbox (consumer_group, message_id, redrive)
SELECT $1, m.message_id, m.redrive
FROM unnest((SELECT $2::text[]), (SELECT $3::integer[]), (SELECT $4::smallint[]), (SELECT $5::uuid[]), (SELECT $6::text[]))
     AS m (message_id, redrive, slot, id, bare)
WHERE NOT EXISTS (
  SELECT FROM troupe.inbox_recent AS r
  WHERE r.slot = m.slot AND r.id = m.id AND r.consumer_group = $1 AND r.redrive = m.redrive
  OFFSET 0)
AND NOT EXISTS (
  SELECT FROM troupe.inbox AS b
  WHERE b.consumer_group = $1 AND b.message_id = m.bare AND b.redrive = m.redrive
  OFFSET 0)
ON CONFLICT DO NOTHING
RETURNING message_id, redrive
