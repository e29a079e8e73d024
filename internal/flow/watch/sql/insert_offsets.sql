-- Says where partitions that are new to the watcher begin.
INSERT INTO troupe.watch_offsets (flow, topic, topic_id, partition, next)
SELECT @flow, m.* FROM unnest(@topics::integer[], @ids::uuid[], @partitions::integer[], @next::bigint[]) AS m
ON CONFLICT DO NOTHING
