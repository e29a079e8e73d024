-- A session that holds the advisory lock, and whose role cannot be a participant's.
SELECT l.pid, a.usename::text
FROM pg_locks l
JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory'
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.classid::bigint = @class::bigint AND l.objid::bigint = @object::bigint & 4294967295 AND l.objsubid = 2
  AND l.granted
  AND NOT has_table_privilege(a.usesysid, 'troupe.deadlines', 'UPDATE')
LIMIT 1
