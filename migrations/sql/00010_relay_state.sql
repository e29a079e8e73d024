-- +goose Up

-- What a relay that streams has published. One row an outbox.
CREATE TABLE troupe.relay_state (
  slot       text        PRIMARY KEY,
  source     text        NOT NULL CHECK (source IN ('wal', 'poll')),
  system_id  text        NOT NULL, -- of the cluster whose transactions the snapshots speak of
  timeline   integer     NOT NULL,
  published  pg_snapshot,          -- what it sees is published, or stands in outbox_failures; null: nothing is known
  sweep      pg_snapshot,          -- what it sees, and published does not, is to be read from the table before the slot is streamed
  lsn        pg_lsn,               -- no place behind it was ever acknowledged to the server
  updated_at timestamptz NOT NULL DEFAULT now()
);

-- The slot that the holder streams: it need not wait for the lease to run out who finds that slot idle.
ALTER TABLE troupe.relay_leases ADD COLUMN slot text;

-- Under wal a row comes by once. One that waits behind another of its key is noted.
ALTER TABLE troupe.outbox_failures
  DROP CONSTRAINT outbox_failures_status_check,
  ADD CONSTRAINT outbox_failures_status_check CHECK (status IN ('retrying', 'parked', 'waiting')),
  DROP CONSTRAINT outbox_failures_attempts_check,
  ADD CONSTRAINT outbox_failures_attempts_check CHECK (attempts > 0 OR status = 'waiting' AND attempts = 0);

-- Before any slot: a slot cannot stream what was written before its publication was made.
CREATE PUBLICATION troupe_outbox FOR TABLE troupe.outbox WITH (publish = 'insert', publish_via_partition_root = true);
