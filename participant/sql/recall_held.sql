-- Makes held messages due that failed while the database's clock was ahead: their next try is as far away as that clock was wrong. A row that
-- another transaction has locked is left: its message runs, or an operator acts on it.
UPDATE troupe.held
SET next_try = clock_timestamp()
WHERE ctid = ANY (ARRAY(
  SELECT ctid
  FROM troupe.held
  WHERE consumer_group = @group
    AND next_try > clock_timestamp()
    AND last_failed_at > clock_timestamp() + interval '1 minute'
  FOR UPDATE SKIP LOCKED))
