-- +goose Up

-- What people did about parked rows. Rows are only ever added; a discarded row is kept here as it was.
CREATE TABLE troupe.outbox_repairs (
  position     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at           timestamptz NOT NULL DEFAULT clock_timestamp(),
  actor        text        NOT NULL CHECK (actor <> ''),   -- who, by his own account
  role         text        NOT NULL DEFAULT session_user,  -- who, by the database's
  action       text        NOT NULL CHECK (action IN ('retry', 'discard')),
  reason       text        NOT NULL,
  row_position bigint      NOT NULL,
  row_id       uuid        NOT NULL,
  topic        text        NOT NULL,
  order_key    bytea,
  attempts     integer     NOT NULL,
  last_error   text        NOT NULL,
  type         text,                                       -- from here on of a discarded row, if it was still there
  headers      jsonb,
  raw_headers  bytea,
  payload      bytea,
  created_at   timestamptz,
  CHECK (reason <> '' OR action = 'retry')
);
CREATE INDEX outbox_repairs_row ON troupe.outbox_repairs (row_id, position);
