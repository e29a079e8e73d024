-- The redriven messages of which an earlier delivery took effect: it has a row in the inbox and is no dead letter. The arrays are as in
-- insert_recent.sql.
SELECT m.identity, m.redrive
FROM unnest((SELECT @identities::text[]), (SELECT @redrives::integer[]), (SELECT @message_ids::text[]), (SELECT @slots::smallint[]),
            (SELECT @uuids::uuid[])) AS m (identity, redrive, message_id, slot, uuid)
WHERE EXISTS (
  SELECT
  FROM (
    SELECT i.redrive
    FROM troupe.inbox AS i
    WHERE i.consumer_group = @group AND i.message_id = m.identity AND i.redrive < m.redrive
    UNION ALL
    SELECT r.redrive
    FROM troupe.inbox_recent AS r
    WHERE r.slot = m.slot AND r.id = m.uuid AND r.consumer_group = @group AND r.redrive < m.redrive) AS earlier
  WHERE NOT EXISTS (
    SELECT
    FROM troupe.dead_letters AS d
    WHERE d.message_id = m.message_id AND d.consumer_group = @group AND d.redrives = earlier.redrive))
