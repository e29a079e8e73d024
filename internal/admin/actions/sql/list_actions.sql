-- Lists operators' actions in a period, the newest first. Actions in one hour with the same actor, role, action, kind of object, subject and
-- reason are one row. At most the newest @rows actions of each table are read.
WITH recorded AS (
  (SELECT at, left(actor, 200) AS actor, role, action, left(reason, 2000) AS reason, left(topic, 250) AS subject,
          CASE WHEN action = 'skip' THEN 'batch' WHEN dead_letter_id IS NULL OR action = 'dead-letter' THEN 'held message' ELSE 'dead letter' END AS kind,
          CASE WHEN dead_letter_id IS NULL OR action = 'dead-letter' THEN message_id ELSE dead_letter_id::text END AS id
   FROM troupe.repairs
   WHERE at >= @since AND at < @before AND (@actor = '' OR actor = @actor)
   ORDER BY at DESC
   LIMIT @rows)
  UNION ALL
  (SELECT at, left(actor, 200), role, action, left(reason, 2000), left(topic, 250), 'outbox row', row_id::text
   FROM troupe.outbox_repairs
   WHERE at >= @since AND at < @before AND (@actor = '' OR actor = @actor)
   ORDER BY at DESC
   LIMIT @rows)
  UNION ALL
  (SELECT at, left(actor, 200), role, action, left(reason, 2000), 'shard ' || shard, 'relay', ''
   FROM troupe.relay_pauses
   WHERE at >= @since AND at < @before AND (@actor = '' OR actor = @actor)
   ORDER BY at DESC
   LIMIT @rows)
  UNION ALL
  (SELECT recorded_at, left(actor, 200), coalesce(role, ''), kind, left(coalesce(reason, ''), 2000), split_part(saga_id, '/', 1), 'saga', saga_id
   FROM troupe.saga_events
   WHERE actor IS NOT NULL AND recorded_at >= @since AND recorded_at < @before AND (@actor = '' OR actor = @actor)
   ORDER BY recorded_at DESC
   LIMIT @rows)
  UNION ALL
  (SELECT at, left(actor, 200), role, action, left(reason, 2000), left(change, 2000), 'schedule', name
   FROM troupe.schedule_changes
   WHERE at >= @since AND at < @before AND (@actor = '' OR actor = @actor)
   ORDER BY at DESC
   LIMIT @rows)
  UNION ALL
  (SELECT at, left(actor, 200), role, action, left(reason, 2000), left(change, 2000), 'rebuild', rebuild::text
   FROM troupe.rebuild_changes
   WHERE at >= @since AND at < @before AND (@actor = '' OR actor = @actor)
   ORDER BY at DESC
   LIMIT @rows)
  UNION ALL
  (SELECT at, actor, role, 'erase', reason, 'a key', 'erasure', encode(key_digest, 'hex')
   FROM troupe.erasures
   WHERE at >= @since AND at < @before AND (@actor = '' OR actor = @actor)
   ORDER BY at DESC
   LIMIT @rows)
)
SELECT min(at), max(at) AS last, actor, role, action, kind, subject, reason, count(*), (array_agg(id ORDER BY at DESC))[1]
FROM recorded
GROUP BY actor, role, action, kind, subject, reason, date_trunc('hour', at)
HAVING max(at) < @after
ORDER BY last DESC
LIMIT @limit
