INSERT INTO troupe.saga_events (saga_id, version, at, kind, event, moments, actor, reason)
SELECT saga_id, version, at, kind, event::jsonb, moments::jsonb, nullif(actor, ''), nullif(reason, '')
FROM unnest(@ids::text[], @versions::integer[], @ats::timestamptz[], @kinds::text[], @events::text[], @moments::text[],
            @actors::text[], @reasons::text[])
  AS e (saga_id, version, at, kind, event, moments, actor, reason)
