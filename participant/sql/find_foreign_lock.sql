-- Returns a session, or a prepared transaction, that holds the advisory lock, and whose role cannot be a participant's. A prepared transaction has no
-- process; it holds a lock on its transaction id.
WITH locks AS MATERIALIZED (SELECT * FROM pg_locks WHERE granted)
SELECT l.pid, coalesce(a.usename, p.owner, '')::text, p.transaction::text
FROM locks AS l
LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
LEFT JOIN locks AS x ON l.pid IS NULL AND x.pid IS NULL AND x.virtualtransaction = l.virtualtransaction AND x.locktype = 'transactionid'
LEFT JOIN pg_prepared_xacts AS p ON p.transaction = x.transactionid
WHERE l.locktype = 'advisory'
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.classid::bigint = @class::bigint AND l.objid::bigint = @object::bigint & 4294967295 AND l.objsubid = 2
  AND coalesce(NOT has_table_privilege(coalesce(a.usename, p.owner), 'troupe.inbox', 'UPDATE'), p.transaction IS NOT NULL)
LIMIT 1
