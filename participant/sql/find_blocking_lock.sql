-- A session that holds an advisory lock of Troupe for which another session waits, and whose role cannot be a participant's.
SELECT h.pid, a.usename::text
FROM pg_locks AS w
JOIN pg_locks AS h ON h.locktype = w.locktype AND h.database = w.database AND h.classid = w.classid AND h.objid = w.objid
                  AND h.objsubid = w.objsubid AND h.granted
JOIN pg_stat_activity AS a ON a.pid = h.pid
WHERE w.locktype = 'advisory'
  AND w.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND w.classid::bigint BETWEEN @first::bigint AND @last::bigint AND w.objsubid = 2
  AND NOT w.granted
  AND NOT has_table_privilege(a.usesysid, 'troupe.deadlines', 'UPDATE')
LIMIT 1
