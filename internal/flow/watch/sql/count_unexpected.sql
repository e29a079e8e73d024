-- Recounts the undeclared messages after a change of the declarations.
INSERT INTO troupe.watch_unexpected (flow, topic, type, messages, first_at, last_at, correlation, flow_text)
SELECT flow, topic, type, count(*), min(at), max(at),
       (array_agg(correlation ORDER BY at DESC))[1], (array_agg(flow_text ORDER BY at DESC))[1]
FROM troupe.watch_messages AS m
WHERE flow = @flow
  AND topic <> ALL (@quiet::integer[])
  AND NOT EXISTS (
    SELECT FROM unnest(@topics::integer[], @types::integer[]) AS sent (topic, type)
    WHERE sent.topic = m.topic AND sent.type = m.type)
GROUP BY flow, topic, type
