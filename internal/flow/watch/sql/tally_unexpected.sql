-- Counts undeclared messages. fresh: they are the first of their kind.
INSERT INTO troupe.watch_unexpected AS u (flow, topic, type, messages, first_at, last_at, correlation, flow_text)
SELECT @flow, t.* FROM unnest(@topics::integer[], @types::integer[], @messages::bigint[], @first::timestamptz[],
  @last::timestamptz[], @correlations::uuid[], @texts::text[]) AS t
ON CONFLICT (flow, topic, type) DO UPDATE
SET messages = u.messages + excluded.messages,
    first_at = least(u.first_at, excluded.first_at),
    last_at = greatest(u.last_at, excluded.last_at),
    correlation = excluded.correlation,
    flow_text = excluded.flow_text
RETURNING topic, type, messages, first_at, last_at, coalesce(flow_text, correlation::text) AS correlation, xmax = 0 AS fresh
