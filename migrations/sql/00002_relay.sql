-- +goose Up

-- The relay: its leases, its progress, and the rows that it could not publish.

-- relay_leases has one row for each shard of the outbox and for each table with a mapping. Its holder is the only active relay
-- there: the term grows with every change of holder and is checked in every delete. The holder of shard 0 leads. A pause in the row
-- of shard 0, or of a table with a mapping, applies to every relay of that outbox until an operator resumes it.
CREATE TABLE troupe.relay_leases (
  shard      integer     PRIMARY KEY CHECK (shard < 64), -- negative: mapped_tables.shard. A relay reads all leases of shards from 0 on, so their number has a limit
  holder     text        NOT NULL DEFAULT '',      -- an operator who pauses an outbox before any relay has run sets none of these three
  term       bigint      NOT NULL DEFAULT 0,
  expires_at timestamptz NOT NULL DEFAULT 'epoch',
  slot       text,                     -- the slot that the holder streams: if the slot is idle, a standby need not wait for expires_at
  shards     integer     NOT NULL DEFAULT 1 CHECK (shards BETWEEN 1 AND 64), -- in the row of shard 0: into how many the outbox is divided
  layout     bigint      NOT NULL DEFAULT 0, -- rises with each change of shards; no lease is given while one of another layout lasts
  wanted     text,                     -- the holder of a relay that holds fewer shards and requests this one
  source     text CHECK (source IN ('wal', 'poll')), -- null: the holder has not chosen yet
  source_why text,
  paused_at  timestamptz,
  paused_by  text,
  paused_why text,
  CONSTRAINT relay_leases_paused_check CHECK ((paused_at IS NULL) = (paused_by IS NULL) AND (paused_at IS NULL) = (paused_why IS NULL)),
  -- Programs cannot read times outside these years. A null passes. Each table whose times several roles may write has such a check.
  CHECK (least(expires_at, paused_at) >= '0001-01-01 00:00Z' AND
         greatest(expires_at, paused_at) < '10000-01-01 00:00Z')
);

-- relay_state holds the progress of the relay of an outbox, one row for each slot name that was configured; the newest row is valid.
-- The relay writes it.
CREATE TABLE troupe.relay_state (
  slot        text        PRIMARY KEY,
  source      text        NOT NULL CHECK (source IN ('wal', 'poll')),
  system_id   text        NOT NULL, -- the cluster that assigned the transaction ids in the snapshots
  timeline    integer     NOT NULL,
  published   pg_snapshot,          -- rows that it sees are published or in outbox_failures; null: unknown
  sweep       pg_snapshot,          -- rows that it sees, and published does not, are read from the table before the slot is streamed
  lsn         pg_lsn,               -- no LSN behind it was ever acknowledged to the server
  updated_at  timestamptz NOT NULL DEFAULT now(),
  publication text,                 -- the publication that lsn belongs to; null: the relay polls
  CHECK (updated_at >= '0001-01-01 00:00Z' AND updated_at < '10000-01-01 00:00Z')
);

-- outbox_failures holds the rows of outbox that could not be published at the first try and, under wal, the rows that wait behind
-- one of their key. The relay writes it; an operator retries or discards parked rows.
CREATE TABLE troupe.outbox_failures (
  position        bigint      PRIMARY KEY,
  id              uuid        NOT NULL,
  topic           text        NOT NULL,
  order_key       bytea,                -- the row's key as bytes; null: nothing waits behind the row
  status          text        NOT NULL CHECK (status IN ('retrying', 'parked', 'waiting')),
  attempts        integer     NOT NULL CONSTRAINT outbox_failures_attempts_check CHECK (attempts > 0 OR status = 'waiting' AND attempts = 0),
  max_attempts    integer     NOT NULL,
  next_try        timestamptz,
  last_error      text        NOT NULL,
  locked_at       timestamptz,
  first_failed_at timestamptz NOT NULL DEFAULT now(),
  CHECK ((status = 'retrying') = (next_try IS NOT NULL)),
  CHECK (least(next_try, locked_at, first_failed_at) >= '0001-01-01 00:00Z' AND
         greatest(next_try, locked_at, first_failed_at) < '10000-01-01 00:00Z'),
  -- Programs that list rows read these columns whole. Topic and key are the row's, of at most 8 MiB.
  CONSTRAINT outbox_failures_size CHECK (
    octet_length(topic)::bigint + coalesce(octet_length(order_key), 0) + octet_length(last_error) <= 33554432)
);
-- Only rows that block others are looked up by key: with a million waiting rows of one key in it, a hash index becomes slower with
-- each row. A hash index, since a key may be longer than a B-tree's entry.
CREATE INDEX outbox_failures_blocking_key ON troupe.outbox_failures USING hash (order_key) WHERE status <> 'waiting';
CREATE INDEX outbox_failures_blocking ON troupe.outbox_failures (position) WHERE status <> 'waiting';
-- A claim takes the rows that have been due longest, and only some of them: without this index it would sort all failed rows.
CREATE INDEX outbox_failures_next_try ON troupe.outbox_failures (next_try) WHERE status = 'retrying';

-- outbox_repairs records each retry and discard of a parked row. An operator's program inserts rows; no program changes them. A
-- discarded row is kept as it was.
CREATE TABLE troupe.outbox_repairs (
  position     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at           timestamptz NOT NULL DEFAULT clock_timestamp(),
  actor        text        NOT NULL CHECK (actor <> ''),   -- the operator, as the program states
  role         text        NOT NULL DEFAULT session_user,  -- the role, as the server states
  action       text        NOT NULL CHECK (action IN ('retry', 'discard')),
  reason       text        NOT NULL,
  table_name   text,                                       -- the table with a mapping; null: troupe.outbox
  row_position bigint      NOT NULL,
  row_id       uuid        NOT NULL,
  topic        text        NOT NULL,
  order_key    bytea,
  attempts     integer     NOT NULL,
  last_error   text        NOT NULL,
  type         text,                                       -- this and the next four of a discarded row, if it still existed
  headers      jsonb,
  raw_headers  bytea,
  payload      bytea,
  created_at   timestamptz,
  mapped_row   jsonb,                                      -- a discarded row of a table with a mapping
  lsn          pg_lsn      DEFAULT pg_current_wal_insert_lsn(), -- a stream that begins at an older LSN skips the discarded row
  CHECK (reason <> '' OR action = 'retry'),
  -- Programs list the actions of all people. No program deletes a record before its time.
  CONSTRAINT outbox_repairs_size CHECK (octet_length(actor)::bigint + octet_length(reason) + coalesce(octet_length(table_name), 0) <= 65536)
);
CREATE INDEX outbox_repairs_row ON troupe.outbox_repairs (row_id, position);
CREATE INDEX outbox_repairs_at ON troupe.outbox_repairs (at);
-- A relay looks for discards of its own outbox. Another outbox may have a million.
CREATE INDEX outbox_repairs_discards ON troupe.outbox_repairs (coalesce(table_name, ''), lsn) WHERE action = 'discard';

-- relay_pauses records each pause and resume. An operator's program inserts rows; no program changes them.
CREATE TABLE troupe.relay_pauses (
  position bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  actor    text        NOT NULL CHECK (actor <> ''),  -- the operator, as the program states
  role     text        NOT NULL DEFAULT session_user, -- the role, as the server states
  action   text        NOT NULL CHECK (action IN ('pause', 'resume')),
  reason   text        NOT NULL CHECK (reason <> '' OR action = 'resume'),
  shard    integer     NOT NULL,                      -- as in relay_leases
  CONSTRAINT relay_pauses_size CHECK (octet_length(actor)::bigint + octet_length(reason) <= 65536)
);

-- relay_slot_samples is a ring of one day with the WAL that each slot retained. Minute n of Unix time has the row n % 1440 of its
-- shard. A row older than a day is from an earlier round. The holder of the lease writes it.
CREATE TABLE troupe.relay_slot_samples (
  shard    integer     NOT NULL, -- as in relay_leases
  minute   smallint    NOT NULL CHECK (minute BETWEEN 0 AND 1439),
  at       timestamptz NOT NULL,
  slot     text        NOT NULL,
  retained bigint      NOT NULL, -- bytes
  PRIMARY KEY (shard, minute),
  CHECK (at >= '0001-01-01 00:00Z' AND at < '10000-01-01 00:00Z')
);

-- outbox_inserted_by returns the transaction of this cluster that inserted a row with the given xid and xmin. A row of a restored
-- dump has the xid of its former cluster: one that this cluster has not assigned yet, or had not when the row was inserted. xmin
-- has 32 bits: the transaction is the highest assigned one with them. A savepoint's xmin is higher than its transaction's xid.
CREATE FUNCTION troupe.outbox_inserted_by(xid xid8, xmin xid) RETURNS xid8
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
  SELECT CASE
    WHEN xid >= pg_snapshot_xmax(pg_current_snapshot()) OR age(xmin) > age(xid::xid)
    THEN (pg_snapshot_xmax(pg_current_snapshot())::text::bigint
          - ((pg_snapshot_xmax(pg_current_snapshot())::text::bigint - xmin::text::bigint) & 4294967295))::text::xid8
    ELSE xid
  END
$$;

-- outbox_status lists every entry with its status. Under poll a published entry is gone; under wal it is done until its partition is
-- dropped. A failed row is not done, although the snapshot sees it. The failure must have the row's id, too: another row may have
-- had its position. The snapshot of another cluster, in a copy or a restored dump, says nothing about the rows.
CREATE VIEW troupe.outbox_status AS
SELECT o.position, o.id, o.topic, o.key, o.type, o.created_at,
       CASE
         WHEN t.status IS NOT NULL THEN t.status
         WHEN (pg_visible_in_snapshot(o.xid, s.published)
             OR pg_visible_in_snapshot(troupe.outbox_inserted_by(o.xid, o.xmin), s.published))
           AND pg_visible_in_snapshot(troupe.outbox_inserted_by('9223372036854775807', o.xmin), s.published) THEN 'done'
         ELSE 'pending'
       END                     AS status,
       coalesce(t.attempts, 0) AS attempts,
       t.max_attempts, t.next_try, t.last_error, t.locked_at
FROM troupe.outbox o
LEFT JOIN troupe.outbox_failures t ON t.position = o.position AND t.id = o.id
LEFT JOIN (SELECT system_id, published FROM troupe.relay_state ORDER BY updated_at DESC LIMIT 1) AS s
       ON s.system_id = (SELECT system_identifier::text FROM pg_control_system());

-- A database in another encoding than UTF-8 may hold text that has no form in UTF-8: any bytes in SQL_ASCII, and bytes such as 0x81
-- in WIN1252. Kafka's headers are UTF-8, so a relay parks such a row of the outbox.

-- text_in_utf8 returns text in UTF-8, or its bytes as they are if they cannot be converted.
-- +goose StatementBegin
CREATE FUNCTION troupe.text_in_utf8(value text) RETURNS bytea
LANGUAGE plpgsql STABLE
AS $$
BEGIN
  RETURN convert_to(value, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
  RETURN convert_to(value, getdatabaseencoding());
END
$$;
-- +goose StatementEnd

-- outbox_order_key returns the key that keeps rows in order: in UTF-8, as in Kafka. It calls text_in_utf8 only where it must, since
-- a statement that calls it for each row of a backlog is faster without. A function with an EXCEPTION clause must not run in parallel.
CREATE FUNCTION troupe.outbox_order_key(key text, key_bytes bytea) RETURNS bytea
LANGUAGE sql STABLE
AS $$
  SELECT coalesce(key_bytes, CASE WHEN getdatabaseencoding() = 'UTF8' THEN convert_to(key, 'UTF8') ELSE troupe.text_in_utf8(key) END)
$$;

-- outbox_unreadable returns the reason why a row's text cannot be converted to UTF-8; null if it can.
-- +goose StatementBegin
CREATE FUNCTION troupe.outbox_unreadable(topic text, key text, type text, headers jsonb) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  at text;
BEGIN
  at := 'topic';   PERFORM convert_to(topic, 'UTF8');
  at := 'key';     PERFORM convert_to(key, 'UTF8');
  at := 'type';    PERFORM convert_to(type, 'UTF8');
  at := 'headers'; PERFORM convert_to(headers::text, 'UTF8');
  RETURN NULL;
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
  RETURN format('column %s is not text in the encoding %s: %s', at, getdatabaseencoding(), SQLERRM);
END
$$;
-- +goose StatementEnd

-- outbox_shard returns the shard of a row: by its key, so that all rows of a key are in one shard, or by its id without a key. It is
-- the same for a key as text and as bytes. STABLE is enough: only the relay's statements call it, and no stored value depends on it.
CREATE FUNCTION troupe.outbox_shard(key text, key_bytes bytea, id uuid, shards integer) RETURNS integer
LANGUAGE sql STABLE
AS $$
  SELECT ((hashtextextended(encode(coalesce(troupe.outbox_order_key(key, key_bytes), uuid_send(id)), 'hex') COLLATE "C", 0)
           & 9223372036854775807) % shards)::integer
$$;

-- The publication must exist before any slot: a slot cannot stream rows that were written before its publication was made.
CREATE PUBLICATION troupe_outbox FOR TABLE troupe.outbox WITH (publish = 'insert', publish_via_partition_root = true);
