-- Returns a session, or a prepared transaction, that holds an advisory lock of Troupe for which a session waits, and whose role can be neither a
-- participant's nor an operator's of sagas. A prepared transaction has no process; it holds a lock on its transaction id.
WITH locks AS MATERIALIZED (SELECT * FROM pg_locks)
SELECT h.pid, coalesce(a.usename, p.owner, '')::text, p.transaction::text
FROM locks AS w
JOIN locks AS h ON h.locktype = w.locktype AND h.database = w.database AND h.classid = w.classid AND h.objid = w.objid
                AND h.objsubid = w.objsubid AND h.granted
LEFT JOIN pg_stat_activity AS a ON a.pid = h.pid
LEFT JOIN locks AS x ON h.pid IS NULL AND x.pid IS NULL AND x.virtualtransaction = h.virtualtransaction AND x.locktype = 'transactionid'
                     AND x.granted
LEFT JOIN pg_prepared_xacts AS p ON p.transaction = x.transactionid
WHERE w.locktype = 'advisory'
  AND w.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND w.classid::bigint BETWEEN @first::bigint AND @last::bigint AND w.objsubid = 2
  AND NOT w.granted
  AND coalesce(NOT has_table_privilege(coalesce(a.usename, p.owner), 'troupe.deadlines', 'UPDATE'), p.transaction IS NOT NULL)
LIMIT 1
