-- Divides the outbox into another number of shards, if the term is still ours, and notifies the holders of leases. From then on leases of
-- the former layout cannot be renewed.
WITH divided AS (
  UPDATE troupe.relay_leases
  SET shards = @number,
      layout = layout + 1
  WHERE shard = 0
    AND holder = @holder
    AND term = @term
    AND expires_at > clock_timestamp()
    AND shards <> @number
  RETURNING layout
)
SELECT pg_notify('troupe_relay', '')
FROM divided
