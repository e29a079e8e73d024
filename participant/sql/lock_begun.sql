-- Locks the marks of calls, without a wait. A call that is under way has its mark locked until its transaction ends; if its session is gone, the
-- server ends the transaction. The arrays are as in insert_recent.sql.
SELECT
FROM unnest((SELECT @operations::text[]), (SELECT @sagas::text[])) AS m (operation, saga),
LATERAL (
  SELECT FROM troupe.answers AS s
  WHERE s.consumer_group = @group AND s.message_type = m.operation AND s.idempotency_key = m.saga
  OFFSET 0
  FOR UPDATE NOWAIT) AS a
