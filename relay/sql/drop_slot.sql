-- Drops the slot, if it is there and the term is still ours. It returns whether the term is ours: a relay that was frozen would drop the slot
-- that its successor has created.
WITH lease AS MATERIALIZED (
  SELECT term
  FROM troupe.relay_leases
  WHERE shard = @shard
    AND holder = @holder
    AND term = @term
    AND expires_at > clock_timestamp()
  FOR SHARE
), dropped AS MATERIALIZED (
  SELECT pg_drop_replication_slot(slot_name) AS result
  FROM pg_replication_slots
  WHERE slot_name = @slot
    AND EXISTS (SELECT FROM lease)
)
SELECT EXISTS (SELECT FROM lease), (SELECT count(result) FROM dropped)
