-- Makes held messages due that failed while the database's clock was ahead: their next try is as far away as that clock was wrong. A row that
-- another transaction has locked is left: its message runs, or an operator acts on it. An index can be searched by now(), the time of this
-- statement, and not by clock_timestamp(): the one on last_failed_at has no such row, and the one on next_try may have many.
UPDATE troupe.held
SET next_try = clock_timestamp()
WHERE ctid = ANY (ARRAY(
  SELECT ctid
  FROM troupe.held
  WHERE consumer_group = @group
    AND next_try > clock_timestamp()
    AND last_failed_at > now() + interval '1 minute'
  FOR UPDATE SKIP LOCKED))
