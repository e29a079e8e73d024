-- +goose Up

-- Tables other than troupe.outbox that a relay publishes by a mapping.

-- mapped_tables has one row for each such table, which the relay writes: it has the columns of relay_state.
CREATE TABLE troupe.mapped_tables (
  name        text        PRIMARY KEY, -- schema.table
  shard       integer     NOT NULL UNIQUE GENERATED ALWAYS AS IDENTITY (INCREMENT BY -1 START WITH -1), -- its lease in relay_leases
  source      text        NOT NULL DEFAULT 'poll' CHECK (source IN ('wal', 'poll')), -- poll: it was not streamed yet
  system_id   text        NOT NULL DEFAULT '',
  timeline    integer     NOT NULL DEFAULT 0,
  published   pg_snapshot,
  sweep       pg_snapshot,
  lsn         pg_lsn,
  updated_at  timestamptz NOT NULL DEFAULT now(),
  publication text,
  slot        text                      -- the slot that lsn belongs to
);

-- mapped_failures holds the rows of mapped tables that could not be published at the first try, and the rows that wait behind them.
-- It contains the row itself, since many services delete it in the transaction that inserts it. The relay writes it; an operator
-- retries or discards parked rows.
CREATE TABLE troupe.mapped_failures (
  position        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- in the order of the log
  table_name      text        NOT NULL REFERENCES troupe.mapped_tables (name),
  id              uuid        NOT NULL, -- the event's id, or made from it if that is no UUID
  event_id        text        NOT NULL, -- as in the row; empty: it has none
  topic           text        NOT NULL, -- empty: it has none
  order_key       bytea,                -- the row's key as bytes; null: nothing waits behind the row
  status          text        NOT NULL CHECK (status IN ('retrying', 'parked', 'waiting')),
  attempts        integer     NOT NULL CHECK (attempts > 0 OR status = 'waiting' AND attempts = 0),
  max_attempts    integer     NOT NULL,
  next_try        timestamptz,
  last_error      text        NOT NULL,
  first_failed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  row             jsonb       NOT NULL, -- a Row of package internal/mapping
  row_bytes       integer     NOT NULL GENERATED ALWAYS AS (octet_length(row::text)) STORED, -- uncompressed size, by which a relay limits its claims
  commit_lsn      pg_lsn,               -- of its transaction; null: it was read from the table, or from a slot that was replaced
  commit_row      bigint,               -- its number among the transaction's rows of the table
  UNIQUE (table_name, id),
  CHECK ((status = 'retrying') = (next_try IS NOT NULL)),
  CHECK (least(next_try, first_failed_at) >= '0001-01-01 00:00Z' AND
         greatest(next_try, first_failed_at) < '10000-01-01 00:00Z')
);
-- As for outbox_failures.
CREATE INDEX mapped_failures_blocking_key ON troupe.mapped_failures USING hash (order_key) WHERE status <> 'waiting';
-- The relay reads each second which rows of a table block others. A million may wait behind them.
CREATE INDEX mapped_failures_blocking ON troupe.mapped_failures (table_name, position) WHERE status <> 'waiting';
CREATE INDEX mapped_failures_next_try ON troupe.mapped_failures (table_name, next_try) WHERE status = 'retrying';
