-- Returns, for each message, the other deliveries of it that took effect: deliveries with a row in the inbox and without a dead letter. The arrays
-- are as in insert_recent.sql.
SELECT m.identity, m.redrive, other.redrive
FROM unnest((SELECT @identities::text[]), (SELECT @redrives::integer[]), (SELECT @message_ids::text[]), (SELECT @slots::smallint[]),
            (SELECT @uuids::uuid[])) AS m (identity, redrive, message_id, slot, uuid),
LATERAL (
  SELECT i.redrive
  FROM troupe.inbox AS i
  WHERE i.consumer_group = @group AND i.message_id = m.identity
  UNION
  SELECT r.redrive
  FROM troupe.inbox_recent AS r
  WHERE r.slot = m.slot AND r.id = m.uuid AND r.consumer_group = @group
  UNION
  SELECT -1 -- the dead letter was of a rebuild that the database has lost: the message took effect before that rebuild
  WHERE m.redrive >> 16 > 0
    AND NOT EXISTS (SELECT FROM troupe.rebuilds AS b WHERE b.consumer_group = @group AND b.generation = m.redrive >> 16)) AS other
WHERE other.redrive <> m.redrive
  AND (other.redrive < 0 OR other.redrive >> 16 >= m.redrive >> 16) -- deliveries before the rebuild of the dead letter do not count
  AND NOT EXISTS (
    SELECT
    FROM troupe.dead_letters AS d
    WHERE d.message_id = m.message_id AND d.consumer_group = @group AND d.redrives = other.redrive
    OFFSET 0)
