INSERT INTO troupe.inbox (consumer_group, message_id, redrive)
SELECT $1, m.message_id, m.redrive
FROM unnest($2::text[], $3::integer[], $4::smallint[], $5::uuid[]) AS m (message_id, redrive, slot, id)
WHERE NOT EXISTS (
  SELECT FROM troupe.inbox_recent AS r
  WHERE r.slot = m.slot AND r.id = m.id AND r.consumer_group = $1 AND r.redrive = m.redrive
  OFFSET 0)
ON CONFLICT DO NOTHING
RETURNING message_id, redrive
