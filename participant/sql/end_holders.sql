SELECT count(pg_terminate_backend(pid))
FROM pg_locks
WHERE locktype = 'advisory'
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND classid = @class AND objid = @lease AND objsubid = 2
  AND granted AND mode = 'ShareLock'
