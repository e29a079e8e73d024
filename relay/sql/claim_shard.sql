-- Takes the lease of a shard other than 0 under a new term, if the lease is free and @layout is the layout in force. It returns no row if
-- it did not take the lease. It takes no lease while a lease of another layout lasts, since that lease's shard has keys of this shard. In
-- the first second after a shard that was requested becomes free, only the relay that requested it may take it.
WITH lead AS MATERIALIZED (
  SELECT layout, shards
  FROM troupe.relay_leases
  WHERE shard = 0
  FOR SHARE
)
INSERT INTO troupe.relay_leases AS l (shard, holder, term, expires_at, layout)
SELECT @shard, @holder, 1, clock_timestamp() + @length::interval, lead.layout
FROM lead
WHERE lead.layout = @layout
  AND lead.shards > @shard
  AND NOT EXISTS (
    SELECT
    FROM troupe.relay_leases former
    WHERE former.shard > 0
      AND former.layout <> lead.layout
      AND former.expires_at > clock_timestamp()
      AND former.expires_at <= clock_timestamp() + @longest::interval) -- as in read_lease.sql
ON CONFLICT (shard) DO UPDATE
SET holder     = excluded.holder,
    term       = l.term + 1,
    expires_at = clock_timestamp() + @length::interval,
    layout     = excluded.layout,
    wanted     = NULL
WHERE (l.expires_at <= clock_timestamp() OR l.expires_at > clock_timestamp() + @longest::interval)
  AND (l.wanted IS NULL
       OR l.wanted = excluded.holder
       OR l.layout <> excluded.layout
       OR l.expires_at NOT BETWEEN clock_timestamp() - interval '1 second' AND clock_timestamp() + @longest::interval)
RETURNING term
