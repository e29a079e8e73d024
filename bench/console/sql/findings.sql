INSERT INTO troupe.watch_findings (slot, flow, rule, about, topic, type, correlation, key, at, found_at)
SELECT slot, flow, 0, id, topic, type, correlation, key, at, at + interval '1 minute'
FROM troupe.watch_messages
WHERE causation IS NULL
  AND substr(key, 3)::integer % 200 = 0
