-- +goose Up

-- Tables other than troupe.outbox that a relay publishes by a mapping. Each has a lease of its own in relay_leases, and
-- stands here as an outbox does in relay_state.
CREATE TABLE troupe.mapped_tables (
  name       text        PRIMARY KEY, -- schema.table
  shard      integer     NOT NULL UNIQUE GENERATED ALWAYS AS IDENTITY (INCREMENT BY -1 START WITH -1), -- of its lease
  source     text        NOT NULL DEFAULT 'poll' CHECK (source IN ('wal', 'poll')), -- poll: it was not streamed yet
  system_id  text        NOT NULL DEFAULT '',
  timeline   integer     NOT NULL DEFAULT 0,
  published  pg_snapshot,
  sweep      pg_snapshot,
  lsn        pg_lsn,
  updated_at timestamptz NOT NULL DEFAULT now()
);

-- Their rows that could not be published at the first try, and those that wait behind them. The row itself stands here
-- too: many services delete it in the transaction that inserts it.
CREATE TABLE troupe.mapped_failures (
  position        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- in the order in which the rows were told
  table_name      text        NOT NULL REFERENCES troupe.mapped_tables (name),
  id              uuid        NOT NULL, -- the event's, or made of it where that is no UUID
  event_id        text        NOT NULL, -- as it stands in the row; empty: it has none
  topic           text        NOT NULL, -- empty: it has none
  order_key       bytea,                -- the row's key as bytes; null: nothing waits behind the row
  status          text        NOT NULL CHECK (status IN ('retrying', 'parked', 'waiting')),
  attempts        integer     NOT NULL CHECK (attempts > 0 OR status = 'waiting' AND attempts = 0),
  max_attempts    integer     NOT NULL,
  next_try        timestamptz,
  last_error      text        NOT NULL,
  first_failed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  row             jsonb       NOT NULL, -- as relay/mapping keeps a Row
  UNIQUE (table_name, id),
  CHECK ((status = 'retrying') = (next_try IS NOT NULL))
);
-- By hash: a key may be longer than a b-tree's entry.
CREATE INDEX mapped_failures_order_key ON troupe.mapped_failures USING hash (order_key);

-- A discarded row of such a table is kept whole too.
ALTER TABLE troupe.outbox_repairs
  ADD COLUMN table_name text, -- null: troupe.outbox
  ADD COLUMN mapped_row jsonb;
