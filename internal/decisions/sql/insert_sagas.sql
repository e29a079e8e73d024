-- Takes the guard of each saga's key, as guard.sql does: an answer that comes before this transaction is visible waits for its end.
INSERT INTO troupe.sagas (id, saga, key, hop, consumer_group, content_type, definition, version, status, steps, reason, state, wake_at,
                          started_at, ended_at)
SELECT id, saga, key, @hop, @group, @content, definition, version, status, steps, nullif(reason, ''), state::jsonb, wake_at, started_at, ended_at
FROM unnest(@ids::text[], @sagas::text[], @keys::text[], @definitions::text[], @versions::integer[], @statuses::text[],
            @steps::text[], @reasons::text[], @states::text[], @wakes::timestamptz[], @started::timestamptz[],
            @ended::timestamptz[])
  AS s (id, saga, key, definition, version, status, steps, reason, state, wake_at, started_at, ended_at)
WHERE pg_advisory_xact_lock(@class::integer, hashtext(saga || '//' || key)) IS NOT NULL
