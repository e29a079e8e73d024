-- Take the shard's lease, if nobody holds it, under a term that nobody had. No row: somebody holds it.
INSERT INTO troupe.relay_leases AS l (shard, holder, term, expires_at)
VALUES (@shard, @holder, 1, clock_timestamp() + @length::interval)
ON CONFLICT (shard) DO UPDATE
SET holder     = excluded.holder,
    term       = l.term + 1,
    expires_at = clock_timestamp() + @length::interval
WHERE l.expires_at <= clock_timestamp()
RETURNING term
