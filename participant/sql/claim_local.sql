-- Claims the entries whose turn it is: at most @limit, and none after the first @bytes of their columns, uncompressed.
--
-- From each key it claims the first entry that has not ended, if no member has this entry and it does not wait for its next try. If the entry was not
-- tried before, the entries right behind it are claimed with it.
--
-- Entries with a next try are read by its time, and only if the time has come; with @due_first they come before the others. For the others the keys
-- are walked in the order of their hashes, from the first one after @from, from key to key: so the entries behind the first of a key cost nothing.
--
-- An entry of another topic than @topics, and the later ones of its key, are left to members that consume its topic. @unconsumed are topics that had
-- no consumer when the caller looked; if one has started since, it has a lock, as in other_topics.sql.
--
-- An entry that was in progress when its participant died comes alone, and only with @quarantine. An entry that waits for a handler is left for
-- @yield seconds to members that handle its type.
WITH RECURSIVE claimable AS MATERIALIZED (
  SELECT topic
  FROM unnest(@topics::text[]) AS consumed (topic)
  UNION ALL
  SELECT topic
  FROM unnest(@unconsumed::text[]) AS unconsumed (topic)
  WHERE NOT EXISTS (
    SELECT
    FROM pg_locks AS l
    WHERE l.locktype = 'advisory'
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND l.classid = @topic_class::integer::oid
      AND l.objid = hashtext(@group::text || ' ' || topic)::oid
      AND l.objsubid = 2)
), keys AS (
  (SELECT hold_key, position
   FROM troupe.local_work
   WHERE consumer_group = @group AND hold_key > @from AND ended_at IS NULL AND next_try IS NULL
   ORDER BY hold_key, position
   LIMIT 1)
  UNION ALL
  SELECT next.hold_key, next.position
  FROM keys
  CROSS JOIN LATERAL (
    SELECT w.hold_key, w.position
    FROM troupe.local_work AS w
    WHERE w.consumer_group = @group AND w.hold_key > keys.hold_key AND w.ended_at IS NULL AND w.next_try IS NULL
    ORDER BY w.hold_key, w.position
    LIMIT 1) AS next
), at_once AS (
  SELECT head.*
  FROM keys
  CROSS JOIN LATERAL ( -- an entry that waits for its next try may be before it
    SELECT w.position
    FROM troupe.local_work AS w
    WHERE w.consumer_group = @group AND w.hold_key = keys.hold_key AND w.ended_at IS NULL
    ORDER BY w.hold_key, w.position
    LIMIT 1) AS first
  CROSS JOIN LATERAL ( -- FOR UPDATE inside makes this run for one key after the other, whatever the planner estimates
    SELECT w.hold_key, w.position, w.attempts = 0 AND w.unhandled_since IS NULL AS fresh,
           w.crashes > 0 OR w.status = 'in progress' AND w.locked_by <> ALL (@own::integer[]) AS suspect
    FROM troupe.local_work AS w
    WHERE w.consumer_group = @group
      AND w.hold_key = keys.hold_key
      AND w.position = keys.position
      AND w.ended_at IS NULL
      AND w.next_try IS NULL
      AND w.topic = ANY (ARRAY(SELECT topic FROM claimable))
      -- The lock on a number is free once its member has ended; @own are earlier numbers of the caller. The caller itself may have ended while the
      -- server still runs this statement: so entries that are locked by its present number are not claimed.
      AND CASE w.status
        WHEN 'pending' THEN w.crashes = 0 OR @quarantine
        ELSE (w.crashes = 0 AND w.locked_by = ANY (@own) OR @quarantine)
          AND (w.locked_by <> @member AND pg_try_advisory_xact_lock_shared(@class, w.locked_by)
               OR w.locked_at < clock_timestamp() - make_interval(secs => @stale::float8))
      END
    FOR UPDATE SKIP LOCKED) AS head
  WHERE first.position = keys.position
  LIMIT @limit
), due AS (
  SELECT w.hold_key, w.position, false AS fresh, false AS suspect
  FROM troupe.local_work AS w
  WHERE w.consumer_group = @group
    AND w.next_try <= statement_timestamp() - make_interval(secs => CASE
          WHEN w.unhandled_since IS NULL OR w.type = ANY (@types::text[]) THEN 0
          ELSE @yield::float8
        END)
    AND w.next_try <= statement_timestamp() -- so that the index on next_try is used
    AND w.topic = ANY (ARRAY(SELECT topic FROM claimable))
    AND w.position = (SELECT first.position
                      FROM troupe.local_work AS first
                      WHERE first.consumer_group = @group AND first.hold_key = w.hold_key AND first.ended_at IS NULL
                      ORDER BY first.hold_key, first.position
                      LIMIT 1)
  ORDER BY w.next_try
  LIMIT @limit
  FOR UPDATE SKIP LOCKED
), heads AS (
  SELECT * FROM due WHERE @due_first
  UNION ALL
  SELECT * FROM at_once
  UNION ALL
  SELECT * FROM due WHERE NOT @due_first
  LIMIT @limit
), turn AS (
  SELECT hold_key, position, fresh AND NOT suspect AS fresh
  FROM heads
  WHERE position = (SELECT min(position) FROM heads WHERE suspect) OR NOT EXISTS (SELECT FROM heads WHERE suspect)
), chosen AS (
  SELECT position
  FROM (
    -- The rows come in the order of the loops, without ORDER BY: sorts are switched off for this statement, and a plan with a sort gets so high a
    -- cost that Postgres compiles it with JIT.
    SELECT position, bytes, sum(bytes) OVER (ROWS UNBOUNDED PRECEDING) AS bytes_so_far
    FROM (
      SELECT behind.position, behind.bytes
      FROM turn
      CROSS JOIN LATERAL (
        SELECT b.position, b.bytes, bool_and(b.position = turn.position
                                             OR turn.fresh AND b.status = 'pending' AND b.attempts = 0 AND b.unhandled_since IS NULL
                                             AND b.crashes = 0 AND b.topic = ANY (ARRAY(SELECT topic FROM claimable)))
                                      OVER (ORDER BY b.position) AS goes
        FROM (
          SELECT w.position, w.status, w.attempts, w.unhandled_since, w.crashes, w.topic,
                 coalesce(octet_length(w.payload), 0) + coalesce(octet_length(w.raw_headers), 0) + coalesce(octet_length(w.key), 0)
                 + coalesce(octet_length(w.key_bytes), 0) + octet_length(w.topic) + octet_length(w.type)
                 + CASE WHEN pg_column_compression(w.headers) IS NULL THEN pg_column_size(w.headers) ELSE octet_length(w.headers::text) END AS bytes
          FROM troupe.local_work AS w
          WHERE w.consumer_group = @group AND w.hold_key = turn.hold_key AND w.ended_at IS NULL AND w.position >= turn.position
          ORDER BY w.hold_key, w.position -- with hold_key, or a planner without statistics walks along the primary key
          LIMIT CASE WHEN turn.fresh THEN @limit ELSE 1 END) AS b
      ) AS behind
      WHERE behind.goes
      LIMIT @limit) AS first
  ) AS sized
  WHERE bytes_so_far - bytes <= @bytes
)
UPDATE troupe.local_work AS w
SET status       = 'in progress',
    locked_at    = clock_timestamp(),
    locked_by    = @member,
    term         = w.term + 1,
    crashes      = w.crashes + (w.status = 'in progress' AND w.locked_by <> ALL (@own))::int,
    max_attempts = @max_attempts,
    next_try     = NULL
WHERE w.consumer_group = @group
  AND w.position = ANY (ARRAY(SELECT position FROM chosen))
RETURNING w.position, w.id, w.topic, w.key, w.key_bytes, w.type, w.headers, w.raw_headers, w.payload, w.created_at,
          w.hold_key, w.attempts, w.first_failed_at, w.term, w.crashes,
          coalesce(extract(epoch FROM clock_timestamp() - w.first_failed_at), 0)::float8,
          coalesce(extract(epoch FROM clock_timestamp() - w.unhandled_since), 0)::float8
