-- What is visible, and behind it a place in the log that every visible commit is before; in this order. The message makes
-- the stream tell when it has passed that place, and keeps a slot moving whose outbox is quiet.
SELECT pg_current_snapshot()::text       AS snapshot,
       pg_current_wal_insert_lsn()::text AS lsn,
       pg_logical_emit_message(true, 'troupe', '') IS NULL
