-- Transactions that may still insert a row with a position taken before now, prepared ones included: an insert locks
-- the parent before it takes its position and until its end.
SELECT DISTINCT virtualtransaction
FROM pg_locks
WHERE locktype = 'relation'
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND relation = 'troupe.outbox'::regclass
  AND mode = 'RowExclusiveLock'
