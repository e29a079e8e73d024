-- Reads the number of shards, if the term is still ours, and for how much longer leases of former layouts last.
SELECT lead.shards, lead.layout,
       (SELECT max(former.expires_at) - clock_timestamp()
        FROM troupe.relay_leases former
        WHERE former.shard > 0
          AND former.layout <> lead.layout
          AND former.expires_at > clock_timestamp()
          AND former.expires_at <= clock_timestamp() + @longest::interval) AS lasts -- as in read_lease.sql
FROM troupe.relay_leases lead
WHERE shard = 0
  AND holder = @holder
  AND term = @term
