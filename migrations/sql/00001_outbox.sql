-- +goose Up

-- The outbox: the table that services write, and its partitions.

CREATE SCHEMA IF NOT EXISTS troupe;

-- uuidv7 returns a UUID of RFC 9562 version 7: 48 bits of Unix milliseconds, then random bits. Postgres has such a function from
-- version 18 on, and Troupe supports 14.
-- +goose StatementBegin
CREATE FUNCTION troupe.uuidv7() RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$
  SELECT encode(
    set_bit(set_bit(
      overlay(uuid_send(gen_random_uuid())
        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
        FROM 1 FOR 6),
      52, 1), 53, 1),
    'hex')::uuid
$$;
-- +goose StatementEnd

-- outbox holds the messages to publish. A service in any language inserts them, in the transaction that changes its own rows:
--   INSERT INTO troupe.outbox (topic, key, type, payload) VALUES (…);
-- Insert into this table and never into a partition: a partition assigns no position. The relay reads the rows. It deletes each
-- published row under poll, and drops whole partitions under wal.
CREATE TABLE troupe.outbox (
  position    bigint      GENERATED ALWAYS AS IDENTITY (CACHE 1), -- order within a key; not gap-free
  xid         xid8        NOT NULL DEFAULT pg_current_xact_id(),  -- the writing transaction; the relay compares it with relay_state.published
  id          uuid        NOT NULL DEFAULT troupe.uuidv7(),       -- the message's id: ce_id in Kafka
  topic       text        NOT NULL CHECK (topic <> ''),
  key         text,                                               -- rows with one key are published in order; null: no order
  key_bytes   bytea,                                              -- replaces key if the key is not text
  type        text        NOT NULL CHECK (type <> ''),
  headers     jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(headers) = 'object'),
  raw_headers bytea,                                              -- replaces headers if one is not text or repeats
  payload     bytea,                                              -- null is a tombstone
  created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (position),
  -- A relay holds whole rows in memory. A row of 100 MB can compress to 1 MB on disk, and would exceed a usual memory limit.
  CONSTRAINT outbox_size CHECK (
    coalesce(octet_length(payload)::bigint, 0) + octet_length(headers::text) + coalesce(octet_length(raw_headers), 0)
    + coalesce(octet_length(key), 0) + coalesce(octet_length(key_bytes), 0) + octet_length(type) + octet_length(topic) <= 8388608)
) PARTITION BY RANGE (position);

-- outbox_partitions lists the partitions of outbox with their state, so that the relay can continue after a crash between two
-- steps. The relay adds partitions with CREATE TABLE LIKE and ATTACH, and removes them.
CREATE TABLE troupe.outbox_partitions (
  name    text   PRIMARY KEY,
  lo      bigint NOT NULL UNIQUE, -- inclusive
  hi      bigint NOT NULL,        -- exclusive
  state   text   NOT NULL DEFAULT 'attached' CHECK (state IN ('attached', 'detaching', 'detached')),
  done_at timestamptz,            -- when every row was published and no transaction could write more; null: not yet. Retention counts from here
  CHECK (lo < hi)
);

-- The first four partitions.
-- +goose StatementBegin
DO $$
DECLARE
  size CONSTANT bigint := 5000000;
BEGIN
  FOR n IN 0..3 LOOP
    EXECUTE format('CREATE TABLE troupe.%I PARTITION OF troupe.outbox FOR VALUES FROM (%s) TO (%s)',
                   'outbox_' || n * size, n * size, (n + 1) * size);
    INSERT INTO troupe.outbox_partitions (name, lo, hi) VALUES ('outbox_' || n * size, n * size, (n + 1) * size);
  END LOOP;
END
$$;
-- +goose StatementEnd
