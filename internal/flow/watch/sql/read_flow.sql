-- Messages of flows, in the order of the log.
SELECT m.correlation AS flow_id, t.name AS topic, y.name AS type, m.partition, m."offset", m.at, m.written_at, m.outcome,
       m.id AS message_id, coalesce(m.id_text, m.id::text) AS id, m.causation, m.key, coalesce(m.flow_text, m.correlation::text) AS correlation
FROM troupe.watch_messages AS m
JOIN troupe.watch_names AS t ON t.id = m.topic
JOIN troupe.watch_names AS y ON y.id = m.type
WHERE m.flow = @flow AND m.correlation = ANY (@correlations::uuid[])
ORDER BY m.at, m.topic, m.partition, m."offset"
LIMIT @most
