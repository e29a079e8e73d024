INSERT INTO troupe.saga_stash (saga, variable, value, message_id, event, expires_at)
SELECT saga, variable, value, message_id, event, expires_at
FROM unnest(@sagas::text[], @variables::text[], @values::text[], @messages::text[], @events::jsonb[], @expires::timestamptz[])
  WITH ORDINALITY AS e (saga, variable, value, message_id, event, expires_at, number)
ORDER BY number
ON CONFLICT DO NOTHING
