-- The limit equals the number of rows. It shows the planner that there are few, so that it looks each saga up by its id. Otherwise a
-- session could plan a scan while the table is small, and keep that plan when it has grown.
UPDATE troupe.sagas AS s
SET version = n.version, status = n.status, steps = n.steps, reason = nullif(n.reason, ''), state = n.state::jsonb,
    wake_at = n.wake_at, updated_at = clock_timestamp(), ended_at = n.ended_at, definition = n.definition
FROM (
  SELECT *
  FROM unnest(@ids::text[], @was::integer[], @versions::integer[], @statuses::text[], @steps::text[], @reasons::text[],
              @states::text[], @wakes::timestamptz[], @ended::timestamptz[], @definitions::text[])
    AS c (id, was, version, status, steps, reason, state, wake_at, ended_at, definition)
  LIMIT @limit::bigint) AS n
WHERE s.id = n.id
  AND s.version = n.was
