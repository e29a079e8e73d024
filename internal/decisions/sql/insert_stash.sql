-- An event that is kept for a saga does not expire.
INSERT INTO troupe.saga_stash (saga, variable, value, saga_id, shared, message_id, event, expires_at)
SELECT saga, variable, value, saga_id, shared, message_id, event, CASE WHEN saga_id = '' THEN expires_at END
FROM unnest(@sagas::text[], @variables::text[], @values::text[], @ids::text[], @shared::boolean[], @messages::text[], @events::jsonb[],
            @expires::timestamptz[])
  WITH ORDINALITY AS e (saga, variable, value, saga_id, shared, message_id, event, expires_at, number)
ORDER BY number
ON CONFLICT DO NOTHING
