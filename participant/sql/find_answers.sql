-- Returns the stored answers with the keys in the arrays. The arrays are as in insert_recent.sql.
SELECT a.message_type, a.idempotency_key, a.outcome, a.type, a.content_type, a.payload, coalesce(a.command_key, ''), a.version,
       a.request_hash
FROM unnest((SELECT $2::text[]), (SELECT $3::text[])) AS m (message_type, idempotency_key),
LATERAL (
  SELECT s.*, s.xmin AS version FROM troupe.answers AS s
  WHERE s.consumer_group = $1 AND s.message_type = m.message_type AND s.idempotency_key = m.idempotency_key
  OFFSET 0) AS a