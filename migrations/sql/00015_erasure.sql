-- +goose Up

-- erasures records each erasure of the data of a key, without that data: docs/erasure.md. troupe erase inserts rows as the owner of the
-- tables; no program changes them. They are kept for ever, since a database that is restored from a backup has the data again.
CREATE TABLE troupe.erasures (
  position   bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at         timestamptz NOT NULL DEFAULT clock_timestamp(),
  actor      text        NOT NULL CHECK (actor <> ''),  -- the operator, as the program states
  role       text        NOT NULL DEFAULT session_user, -- the role, as the server states
  reason     text        NOT NULL CHECK (reason <> ''),
  key_digest bytea       NOT NULL,                      -- SHA-256 of the key
  changed    jsonb       NOT NULL                       -- the number of deleted and blanked rows by table
);
CREATE INDEX erasures_key ON troupe.erasures (key_digest, position);
