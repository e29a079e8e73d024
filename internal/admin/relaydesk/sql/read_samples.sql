-- The log kept for slots in the last day: the maximum of each five minutes with a sample, oldest first.
SELECT shard, left(slot, 63) AS slot, to_timestamp(floor(extract(epoch FROM at) / 300) * 300) AS since, max(retained) AS retained
FROM troupe.relay_slot_samples
WHERE at > clock_timestamp() - interval '1 day'
GROUP BY shard, relay_slot_samples.slot, since
ORDER BY shard < 0, shard DESC, since -- tables with a mapping last
LIMIT 100000
