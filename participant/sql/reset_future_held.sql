-- Makes held messages due that failed while the database's clock was ahead: their next try is too far away by the error of that clock. A row that
-- another transaction has locked is left: its message runs, or an operator acts on it. The search uses the index on last_failed_at, which normally
-- has no such row; the index on next_try may have many. It uses now(), the time of this statement, since an index cannot be searched by
-- clock_timestamp().
UPDATE troupe.held
SET next_try = clock_timestamp()
WHERE ctid = ANY (ARRAY(
  SELECT ctid
  FROM troupe.held
  WHERE consumer_group = @group
    AND next_try > clock_timestamp()
    AND last_failed_at > now() + interval '1 minute'
  FOR UPDATE SKIP LOCKED))
