-- Deletes old answers to sagas' commands, and stores in the same statement the time up to which answers may be deleted. A command that finds no
-- answer reads that time afterwards.
WITH gone AS (
  DELETE FROM troupe.answers
  WHERE ctid = ANY (ARRAY(
    SELECT ctid
    FROM troupe.answers
    WHERE consumer_group = @group
      AND command_key IS NOT NULL
      AND answered_at < now() - make_interval(secs => @retention::float8)
    ORDER BY answered_at
    LIMIT @limit
    FOR UPDATE SKIP LOCKED))
  RETURNING answered_at),
forgotten AS (
  INSERT INTO troupe.inbox_groups AS g (consumer_group, days, barrier_forgotten)
  SELECT @group, 0, max(answered_at)
  FROM gone
  HAVING count(*) > 0
  ON CONFLICT (consumer_group) DO UPDATE
  SET barrier_forgotten = greatest(g.barrier_forgotten, excluded.barrier_forgotten))
SELECT FROM gone
