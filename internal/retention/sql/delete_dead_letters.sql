-- Deletes a batch of closed dead letters, in the order in which they were created. A dead letter stays while a participant would draw a wrong
-- conclusion from its absence: that the message took effect, or that a deadline is still to come.
WITH due AS (
  SELECT created_at, id, consumer_group, message_id, redrives
  FROM troupe.dead_letters
  WHERE status <> 'open'
    AND (created_at, id) > (@after_at, @after_id::uuid)
    AND created_at < @before
  ORDER BY created_at, id
  LIMIT @limit
  FOR UPDATE SKIP LOCKED
), free AS (
  SELECT d.id
  FROM due AS d
  -- It was closed lately.
  WHERE NOT EXISTS (SELECT FROM troupe.repairs AS r WHERE r.dead_letter_id = d.id AND r.at >= @before OFFSET 0)
    -- The inbox has its identity, with or without a hash of the source.
    AND NOT EXISTS (
      SELECT FROM troupe.inbox AS i WHERE i.consumer_group = d.consumer_group AND i.message_id = d.message_id AND i.redrive = d.redrives OFFSET 0)
    AND NOT EXISTS (
      SELECT
      FROM troupe.inbox AS i
      WHERE left(i.message_id, -17) = d.message_id AND left(right(i.message_id, 17), 1) = '~' AND i.consumer_group = d.consumer_group
        AND i.redrive = d.redrives
      OFFSET 0)
    AND NOT EXISTS (
      SELECT
      FROM (SELECT CASE WHEN d.message_id ~ '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$' THEN d.message_id::uuid END AS id) AS u,
      LATERAL (
        SELECT
        FROM troupe.inbox_recent AS i
        WHERE i.slot = ((('x' || left(replace(u.id::text, '-', ''), 12))::bit(48)::bigint / 86400000) % 32)::smallint
          AND i.id = u.id AND i.consumer_group = d.consumer_group AND i.redrive = d.redrives
        OFFSET 0) AS i)
    -- A deadline that fired is still there.
    AND NOT EXISTS (SELECT FROM troupe.deadlines AS w WHERE w.fired_at IS NOT NULL AND w.id::text = d.message_id AND w.consumer_group = d.consumer_group)
), removed AS (
  DELETE FROM troupe.dead_letters AS l
  USING free AS f
  WHERE l.id = f.id
  RETURNING l.id
), blanked AS ( -- an erasure finds the content of an edit by its dead letter
  UPDATE troupe.repairs AS r
  SET payload_before = NULL, payload_after = NULL
  FROM removed AS l
  WHERE r.dead_letter_id = l.id AND (r.payload_before IS NOT NULL OR r.payload_after IS NOT NULL)
)
SELECT (SELECT count(*) FROM due), (SELECT count(*) FROM removed), last.created_at, last.id::text
FROM (SELECT created_at, id FROM due ORDER BY created_at DESC, id DESC LIMIT 1) AS last
