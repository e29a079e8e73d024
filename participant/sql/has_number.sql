-- Returns whether a session of this server has the lock on a member's number.
SELECT EXISTS (
  SELECT
  FROM pg_locks AS l
  WHERE l.locktype = 'advisory'
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND l.classid = @class::integer::oid
    AND l.objid = @member::integer::oid
    AND l.objsubid = 2
    AND l.granted)
