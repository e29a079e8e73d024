-- As reset_future_held.sql, for local work.
UPDATE troupe.local_work
SET next_try = clock_timestamp()
WHERE ctid = ANY (ARRAY(
  SELECT ctid
  FROM troupe.local_work
  WHERE consumer_group = @group
    AND next_try > clock_timestamp()
    AND last_failed_at > now() + interval '1 minute'
  FOR UPDATE SKIP LOCKED))
