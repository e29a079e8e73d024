-- As pause.sql, the other way. No row: it is not paused.
WITH paused AS MATERIALIZED (
  SELECT shard, paused_at
  FROM troupe.relay_leases
  WHERE shard = @shard
    AND paused_at IS NOT NULL
  FOR UPDATE
), gone AS (
  UPDATE troupe.relay_leases l
  SET paused_at  = NULL,
      paused_by  = NULL,
      paused_why = NULL
  FROM paused
  WHERE l.shard = paused.shard
), noted AS (
  INSERT INTO troupe.relay_pauses (actor, action, reason, shard)
  SELECT @actor, 'resume', @reason, shard
  FROM paused
)
SELECT paused_at, pg_logical_emit_message(true, 'troupe.pause', '')::text
FROM paused
