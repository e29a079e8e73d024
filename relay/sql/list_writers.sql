-- Lists transactions that may still insert a row with a position that was taken before now, including prepared ones. An insert locks the
-- parent table before it takes its position, and the lock lasts until its transaction ends.
SELECT DISTINCT virtualtransaction
FROM pg_locks
WHERE locktype = 'relation'
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND relation = 'troupe.outbox'::regclass
  AND mode = 'RowExclusiveLock'
