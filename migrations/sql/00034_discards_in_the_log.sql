-- +goose Up

-- Where the log was when a repair was recorded. A stream that begins again at an older LSN reads a row that was discarded since
-- from the log once more, and passes over it. Null: recorded before this column existed.
ALTER TABLE troupe.outbox_repairs ADD COLUMN lsn pg_lsn;
ALTER TABLE troupe.outbox_repairs ALTER COLUMN lsn SET DEFAULT pg_current_wal_insert_lsn();
CREATE INDEX outbox_repairs_discards ON troupe.outbox_repairs (lsn) WHERE action = 'discard';
