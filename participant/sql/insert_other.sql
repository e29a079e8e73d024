-- Inserts the identities that insert_recent.sql does not insert: ids that are no UUIDv7, or of a day that the group does not keep in the ring. The
-- arrays are as in insert_recent.sql. An earlier version stored an id without its source: such a row counts for every source, as long as it is kept.
--
-- A UUIDv7 of a day that has a table in the ring is inserted into the ring too, if members of the group have used the ring. A member with another
-- InboxRetention may insert the same id there at this moment, and the two insertions must meet at a unique key.
WITH m AS MATERIALIZED (
  SELECT n.*, s.slot
  FROM unnest((SELECT $2::text[]), (SELECT $3::integer[]), (SELECT $4::integer[]), (SELECT $5::uuid[]), (SELECT $6::text[]))
       AS n (message_id, redrive, day, id, bare)
  LEFT JOIN troupe.inbox_slots AS s
    ON s.slot = (n.day % 32)::smallint AND s.day = n.day AND EXISTS (SELECT FROM troupe.inbox_groups WHERE consumer_group = $1 AND days > 0)
), recent AS (
  INSERT INTO troupe.inbox_recent (slot, id, consumer_group, redrive)
  SELECT m.slot, m.id, $1, m.redrive
  FROM m
  WHERE m.slot IS NOT NULL
  ON CONFLICT DO NOTHING
  RETURNING id, redrive
)
INSERT INTO troupe.inbox (consumer_group, message_id, redrive)
SELECT $1, m.message_id, m.redrive
FROM m
WHERE (m.slot IS NULL OR EXISTS (SELECT FROM recent AS r WHERE r.id = m.id AND r.redrive = m.redrive))
AND NOT EXISTS (
  SELECT FROM troupe.inbox_recent AS r
  WHERE r.slot = (m.day % 32)::smallint AND r.id = m.id AND r.consumer_group = $1 AND r.redrive = m.redrive
  OFFSET 0)
AND NOT EXISTS (
  SELECT FROM troupe.inbox AS b
  WHERE b.consumer_group = $1 AND b.message_id = m.bare AND b.redrive = m.redrive
  OFFSET 0)
ON CONFLICT DO NOTHING
RETURNING message_id, redrive
