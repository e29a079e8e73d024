-- +goose Up

-- What the holder of a lease says of itself, and what people say to it. A pause stands in the row of shard 0, or of the
-- table with a mapping, and holds for every relay of that outbox until somebody resumes.
ALTER TABLE troupe.relay_leases
  ADD COLUMN source     text CHECK (source IN ('wal', 'poll')), -- null: it has not chosen yet
  ADD COLUMN source_why text,
  ADD COLUMN paused_at  timestamptz,
  ADD COLUMN paused_by  text,
  ADD COLUMN paused_why text,
  ADD CONSTRAINT relay_leases_paused_check CHECK ((paused_at IS NULL) = (paused_by IS NULL) AND (paused_at IS NULL) = (paused_why IS NULL));

-- Who paused and resumed, and why. Rows are only ever added.
CREATE TABLE troupe.relay_pauses (
  position bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  actor    text        NOT NULL CHECK (actor <> ''),  -- who, by his own account
  role     text        NOT NULL DEFAULT session_user, -- who, by the database's
  action   text        NOT NULL CHECK (action IN ('pause', 'resume')),
  reason   text        NOT NULL CHECK (reason <> '' OR action = 'resume'),
  shard    integer     NOT NULL                       -- as in relay_leases
);

-- What slots kept from the server: a ring of a day. Minute n of Unix time is in slot n % 1440 of its lease's ring; one older
-- than a day is of an earlier round, when nobody looked.
CREATE TABLE troupe.relay_slot_samples (
  shard    integer     NOT NULL, -- of the lease whose holder looked
  minute   smallint    NOT NULL CHECK (minute BETWEEN 0 AND 1439),
  at       timestamptz NOT NULL,
  slot     text        NOT NULL,
  retained bigint      NOT NULL, -- bytes of the log
  PRIMARY KEY (shard, minute)
);
