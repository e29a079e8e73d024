WITH removed AS (
  DELETE FROM troupe.handlers AS h
  WHERE h.consumer_group = @group
    AND NOT EXISTS (SELECT FROM unnest(@topics::text[], @handlers::text[]) AS n (topic, handler) WHERE n.topic = h.topic AND n.handler = h.handler)
)
INSERT INTO troupe.handlers (consumer_group, topic, handler, refusal)
SELECT @group, n.topic, n.handler, nullif(n.refusal, '')
FROM unnest(@topics::text[], @handlers::text[], @refusals::text[]) AS n (topic, handler, refusal)
ON CONFLICT (consumer_group, topic, handler) DO UPDATE SET refusal = excluded.refusal WHERE handlers.refusal IS DISTINCT FROM excluded.refusal
