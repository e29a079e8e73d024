-- Findings, the newest first. arrived lists the messages of the key that have come, as pairs of topic and type.
SELECT f.rule, f.about, t.name AS topic, y.name AS type, coalesce(f.flow_text, f.correlation::text) AS correlation,
       f.key, f.at, f.found_at, f.came_at,
       ARRAY(
         SELECT DISTINCT mt.name || ' ' || my.name
         FROM troupe.watch_messages AS m
         JOIN troupe.watch_names AS mt ON mt.id = m.topic
         JOIN troupe.watch_names AS my ON my.id = m.type
         WHERE m.key = f.key AND m.flow = f.flow AND f.rule = ANY (@by_key::integer[])) AS arrived
FROM troupe.watch_findings AS f
JOIN troupe.watch_names AS t ON t.id = f.topic
JOIN troupe.watch_names AS y ON y.id = f.type
WHERE f.flow = @flow
  AND (@found_at::timestamptz IS NULL OR f.found_at = @found_at)
  AND (@correlations::uuid[] IS NULL OR f.correlation = ANY (@correlations))
  AND (@abouts::uuid[] IS NULL OR (f.rule, f.about) IN (SELECT * FROM unnest(@rules::integer[], @abouts)))
  AND (NOT @open::boolean OR f.came_at IS NULL)
ORDER BY f.at DESC, f.rule
LIMIT @most
