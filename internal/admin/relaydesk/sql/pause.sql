-- Ask all relays of an outbox to pause, and note who did. A message in the log tells a relay that streams. No row: it is paused.
WITH asked AS (
  INSERT INTO troupe.relay_leases AS l (shard, paused_at, paused_by, paused_why)
  VALUES (@shard, clock_timestamp(), @actor, @reason) -- before any relay has run
  ON CONFLICT (shard) DO UPDATE
  SET paused_at  = excluded.paused_at,
      paused_by  = excluded.paused_by,
      paused_why = excluded.paused_why
  WHERE l.paused_at IS NULL
  RETURNING shard, paused_at
), noted AS (
  INSERT INTO troupe.relay_pauses (actor, action, reason, shard)
  SELECT @actor, 'pause', @reason, shard
  FROM asked
)
SELECT paused_at, pg_logical_emit_message(true, 'troupe.pause', '')::text
FROM asked
