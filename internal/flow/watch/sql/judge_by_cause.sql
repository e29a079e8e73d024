-- Records a finding for each message of a span of time without its declared successor in time, by cause.
WITH due AS MATERIALIZED (
  SELECT DISTINCT ON (r.rule, m.id) r.rule, m.slot, m.id AS about, m.topic, m.type, m.correlation, m.flow_text, m.key, m.at
  FROM troupe.watch_messages AS m
  JOIN unnest(@rules::integer[], @topics::integer[], @types::integer[]) AS r (rule, topic, type) USING (topic, type)
  WHERE m.flow = @flow AND m.slot = ANY (@slots::smallint[]) AND m.at > @from AND m.at <= @to
  ORDER BY r.rule, m.id, m.at
)
INSERT INTO troupe.watch_findings (slot, flow, rule, about, topic, type, correlation, flow_text, key, at, found_at, came_at)
SELECT d.slot, @flow, d.rule, d.about, d.topic, d.type, d.correlation, d.flow_text, d.key, d.at, @found_at, came.at
FROM due AS d
LEFT JOIN LATERAL (
  SELECT min(m.at) AS at
  FROM troupe.watch_messages AS m
  JOIN unnest(@answer_rules::integer[], @answer_topics::integer[], @answer_types::integer[]) AS a (rule, topic, type) USING (topic, type)
  WHERE a.rule = d.rule AND m.flow = @flow AND m.slot = ANY (@answer_slots::smallint[]) AND m.causation = d.about
) AS came ON true
WHERE (came.at IS NULL OR came.at > d.at + @within::interval)
  AND NOT EXISTS (
    SELECT FROM troupe.watch_findings AS f
    WHERE f.flow = @flow AND f.rule = d.rule AND f.about = d.about)
ON CONFLICT DO NOTHING
