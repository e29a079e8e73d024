-- The leases with their holders, by the database's clock, the state that each holder reports, and the requests of operators. Leases
-- of a former number of shards are left out. held: false for a holder that no longer streams its slot. Texts are cut, and leases of tables with a
-- mapping limited, since the relay of a mapped table may write texts of any length.
SELECT l.shard, coalesce(m.name, '') AS table_name, left(l.holder, 300) AS holder, l.term, l.expires_at,
       extract(epoch FROM l.expires_at - clock_timestamp())::float8 AS remaining,
       l.expires_at > clock_timestamp()
         AND (l.slot IS NULL OR EXISTS (SELECT FROM pg_replication_slots s WHERE s.slot_name = l.slot AND s.active)) AS held,
       coalesce(left(l.wanted, 300), '') AS wanted, l.shards, coalesce(l.source, '') AS source, coalesce(left(l.source_why, 2000), '') AS source_why,
       l.paused_at, coalesce(left(l.paused_by, 200), '') AS paused_by, coalesce(left(l.paused_why, 2000), '') AS paused_why,
       -- the slot that is streamed, else the one that was
       left(coalesce(l.slot,
                CASE WHEN l.shard = 0 THEN (SELECT r.slot FROM troupe.relay_state r WHERE r.source = 'wal' ORDER BY r.updated_at DESC LIMIT 1) END,
                (SELECT s.slot FROM troupe.relay_slot_samples s WHERE s.shard = l.shard ORDER BY s.at DESC LIMIT 1),
                ''), 63) AS slot
FROM troupe.relay_leases l
LEFT JOIN troupe.mapped_tables m ON m.shard = l.shard
LEFT JOIN troupe.relay_leases lead ON lead.shard = 0
WHERE l.shard <= 0
   OR l.shard < lead.shards AND l.layout = lead.layout
ORDER BY l.shard < 0, m.name, l.shard
LIMIT 1000
