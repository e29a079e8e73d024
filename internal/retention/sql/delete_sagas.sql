-- Deletes locked sagas with their logs. It comes after lock_sagas.sql in its transaction, so that it sees the transactions that had a
-- saga locked until then. Each condition is a look-up by index, also in a plan that was made while the tables were empty: hence OFFSET 0.
-- Long texts are stored as hashes, as by package pgtext.
WITH due AS (
  SELECT s.id, s.saga, s.key, s.hop, s.consumer_group, s.state,
         CASE WHEN octet_length(convert_to(s.id, 'UTF8')) <= 255 THEN s.id ELSE 'sha256:' || encode(sha256(convert_to(s.id, 'UTF8')), 'hex') END AS indexed_id,
         CASE WHEN octet_length(convert_to(s.key, 'UTF8')) <= 255 THEN s.key ELSE 'sha256:' || encode(sha256(convert_to(s.key, 'UTF8')), 'hex') END AS indexed_key
  FROM (SELECT id FROM unnest((SELECT @ids::text[])) AS i (id)) AS wanted
  CROSS JOIN LATERAL (SELECT * FROM troupe.sagas WHERE id = wanted.id LIMIT 1) AS s
), free AS (
  SELECT d.id
  FROM due AS d
  -- Its log has an entry that the server recorded after @before. ended_at does not prove its age: roles that may not delete the log can
  -- set it.
  WHERE NOT EXISTS (SELECT FROM troupe.saga_events AS e WHERE e.saga_id = d.id AND e.recorded_at >= @before OFFSET 0)
    -- It has, or waits for, a lock.
    AND NOT EXISTS (SELECT FROM troupe.saga_locks AS l WHERE l.saga_id = d.id OFFSET 0)
    -- An event of its key is stashed.
    AND NOT EXISTS (
      SELECT
      FROM troupe.saga_stash AS e
      WHERE e.saga = d.saga AND e.variable = '' AND e.value = d.indexed_key AND (e.expires_at IS NULL OR e.expires_at > clock_timestamp())
      OFFSET 0)
    -- Its wake-up is on its way, or an event that is tried again for it.
    AND NOT EXISTS (SELECT FROM troupe.deadlines AS w WHERE w.consumer_group = d.consumer_group AND w.scope = d.indexed_id OFFSET 0)
    AND NOT EXISTS (
      SELECT FROM troupe.deadlines AS w WHERE w.name = 'retry-event' AND w.key = d.id AND w.consumer_group = d.consumer_group OFFSET 0)
    -- An operator may still redrive a message about it: an answer that it refused, or a command of which the answer is missing.
    AND NOT EXISTS (
      SELECT
      FROM unnest(ARRAY[convert_to(d.key, 'UTF8'), convert_to(d.id, 'UTF8')]) AS k (key),
      LATERAL (SELECT FROM troupe.dead_letters AS m WHERE m.key = k.key AND m.status = 'open' OFFSET 0) AS m)
    -- The barrier of a step has an answer: a saga that starts with the key again would get it.
    AND NOT EXISTS (
      SELECT
      FROM unnest((SELECT @groups::text[])) AS g (name)
      CROSS JOIN jsonb_path_query(d.state, '$.steps[*].name') AS step -- no error for a state of another shape
      CROSS JOIN unnest(ARRAY['forward ', 'compensate ', 'begun ']) AS o (operation),
      LATERAL (
        SELECT
        FROM troupe.answers AS a
        WHERE a.consumer_group = g.name AND a.message_type = o.operation || (step #>> '{}') AND a.idempotency_key = d.indexed_id
        OFFSET 0) AS a)
), removed AS (
  DELETE FROM troupe.sagas AS s
  USING (SELECT id FROM free LIMIT @limit::bigint) AS f
  WHERE s.id = f.id
  RETURNING s.id
), logs AS (
  DELETE FROM troupe.saga_events AS e
  USING (SELECT id FROM removed LIMIT @limit) AS r
  WHERE e.saga_id = r.id
)
SELECT count(*)
FROM removed
