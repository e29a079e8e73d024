-- Takes the shard's lease under a new term if the lease is free or expired, or if its holder no longer streams a slot. It returns no row if
-- another relay holds the lease. A lease without a slot that would last longer than @longest was taken while the clock was ahead: it is
-- free.
INSERT INTO troupe.relay_leases AS l (shard, holder, term, expires_at)
VALUES (@shard, @holder, 1, clock_timestamp() + @length::interval)
ON CONFLICT (shard) DO UPDATE
SET holder     = excluded.holder,
    term       = l.term + 1,
    expires_at = clock_timestamp() + @length::interval,
    slot       = NULL,
    source     = NULL,
    source_why = NULL
WHERE l.expires_at <= clock_timestamp()
   -- as in read_lease.sql
   OR l.slot IS NULL AND l.expires_at > clock_timestamp() + @longest::interval
   OR l.slot IS NOT NULL AND NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.slot_name = l.slot AND s.active)
RETURNING term
