UPDATE troupe.sagas AS s
SET version = n.version, status = n.status, steps = n.steps, reason = nullif(n.reason, ''), state = n.state,
    wake_at = n.wake_at, updated_at = clock_timestamp(), ended_at = n.ended_at, definition = n.definition
FROM unnest(@ids::text[], @was::integer[], @versions::integer[], @statuses::text[], @steps::text[], @reasons::text[],
            @states::jsonb[], @wakes::timestamptz[], @ended::timestamptz[], @definitions::text[])
  AS n (id, was, version, status, steps, reason, state, wake_at, ended_at, definition)
WHERE s.id = n.id
  AND s.version = n.was
