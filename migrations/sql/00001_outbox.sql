-- +goose Up

CREATE SCHEMA IF NOT EXISTS troupe;

-- RFC 9562 version 7: 48 bits of Unix milliseconds, then random bits. Works on Postgres 14, which has none of its own.
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

-- The outbox. Any language inserts here, in the transaction that changes its own rows:
--   INSERT INTO troupe.outbox (topic, key, type, payload) VALUES (…);
-- Always into this table, never into a partition: a partition gives no position.
CREATE TABLE troupe.outbox (
  position    bigint      GENERATED ALWAYS AS IDENTITY (CACHE 1), -- order within a key; not gap-free
  xid         xid8        NOT NULL DEFAULT pg_current_xact_id(),  -- the writing transaction: what healing is exact by
  id          uuid        NOT NULL DEFAULT troupe.uuidv7(),       -- the message's identity, everywhere
  topic       text        NOT NULL CHECK (topic <> ''),
  key         text,                                               -- per-key order; null: no order
  key_bytes   bytea,                                              -- wins over key where a key is not text
  type        text        NOT NULL CHECK (type <> ''),
  headers     jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(headers) = 'object'),
  raw_headers bytea,                                              -- wins over headers where one is not text or repeats
  payload     bytea,                                              -- null is a tombstone
  created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (position)
) PARTITION BY RANGE (position);

-- Partitions that were made, and what became of them: a crash between two steps is taken up from here.
CREATE TABLE troupe.outbox_partitions (
  name  text   PRIMARY KEY,
  lo    bigint NOT NULL UNIQUE, -- inclusive
  hi    bigint NOT NULL,        -- exclusive
  state text   NOT NULL DEFAULT 'attached' CHECK (state IN ('attached', 'detaching', 'detached')),
  CHECK (lo < hi)
);

-- The first four, while there is nobody to wait for; later ones are made by CREATE TABLE LIKE and ATTACH.
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

-- Rows that could not be published at the first try, and only those.
CREATE TABLE troupe.outbox_failures (
  position        bigint      PRIMARY KEY,
  id              uuid        NOT NULL,
  topic           text        NOT NULL,
  order_key       bytea,                -- the row's key as bytes; null: nothing waits behind the row
  status          text        NOT NULL CHECK (status IN ('retrying', 'parked')),
  attempts        integer     NOT NULL CHECK (attempts > 0),
  max_attempts    integer     NOT NULL,
  next_try        timestamptz,
  last_error      text        NOT NULL,
  locked_at       timestamptz,
  first_failed_at timestamptz NOT NULL DEFAULT now(),
  CHECK ((status = 'retrying') = (next_try IS NOT NULL))
);
-- By hash: a key may be longer than a b-tree's entry.
CREATE INDEX outbox_failures_order_key ON troupe.outbox_failures USING hash (order_key);

-- Every entry with its status. An entry that was published is gone.
CREATE VIEW troupe.outbox_status AS
SELECT o.position, o.id, o.topic, o.key, o.type, o.created_at,
       coalesce(t.status, 'pending') AS status,
       coalesce(t.attempts, 0)       AS attempts,
       t.max_attempts, t.next_try, t.last_error, t.locked_at
FROM troupe.outbox o
LEFT JOIN troupe.outbox_failures t USING (position);

-- One active relay per shard. The term grows with every change of holder and is checked in every delete.
CREATE TABLE troupe.relay_leases (
  shard      integer     PRIMARY KEY,
  holder     text        NOT NULL,
  term       bigint      NOT NULL,
  expires_at timestamptz NOT NULL
);
