-- +goose Up

-- Who may work off a partition of a topic. The term rises with each owner, and a transaction of an earlier term does
-- not commit. Owner and transactions meet at an advisory lock on the id, since row locks that many share use up
-- multixacts.
CREATE TABLE troupe.leases (
  id              integer     GENERATED ALWAYS AS IDENTITY UNIQUE,
  consumer_group  text        NOT NULL,
  topic           text        NOT NULL,
  partition       integer     NOT NULL,
  term            bigint      NOT NULL DEFAULT 1,
  owner           text        NOT NULL,
  taken_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
  released_at     timestamptz,          -- null while it is owned, and after an owner that crashed
  topic_id        uuid,                 -- what the watermark is of
  watermark       bigint      NOT NULL DEFAULT -1, -- every message up to this offset has ended
  watermark_epoch integer     NOT NULL DEFAULT -1, -- leader epoch of that message
  PRIMARY KEY (consumer_group, topic, partition)
);

-- What has ended above the watermark: one row per transaction.
CREATE TABLE troupe.inbox_offsets (
  lease_id integer  NOT NULL,
  topic_id uuid     NOT NULL,
  low      bigint   NOT NULL,
  high     bigint   NOT NULL,
  offsets  bigint[],              -- null: all from low to high
  epoch    integer  NOT NULL      -- the highest leader epoch among them
);
CREATE INDEX inbox_offsets_lease ON troupe.inbox_offsets (lease_id, high);

-- Identities that are UUIDv7 of the last days: by their day in a ring of tables, each of which is emptied before its
-- next day. Uniqueness holds since an id has one day. All other identities stand in troupe.inbox.
CREATE TABLE troupe.inbox_recent (
  slot           smallint NOT NULL, -- day since 1970 modulo 32
  id             uuid     NOT NULL,
  consumer_group text     NOT NULL,
  redrive        integer  NOT NULL DEFAULT 0,
  handled_at     timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (slot, id, consumer_group, redrive)
) PARTITION BY LIST (slot);

-- +goose StatementBegin
DO $$
BEGIN
  FOR slot IN 0..31 LOOP
    EXECUTE format('CREATE TABLE troupe.inbox_recent_%s PARTITION OF troupe.inbox_recent FOR VALUES IN (%s)', slot, slot);
  END LOOP;
END $$;
-- +goose StatementEnd

-- The day whose ids each slot takes.
CREATE TABLE troupe.inbox_slots (
  slot smallint PRIMARY KEY,
  day  integer  NOT NULL
);

-- How long each group wants to remember: the ring forgets by the longest.
CREATE TABLE troupe.inbox_groups (
  consumer_group text    PRIMARY KEY,
  days           integer NOT NULL
);

-- What a command with an idempotency key was answered, for the same key under another id.
CREATE TABLE troupe.answers (
  consumer_group  text        NOT NULL,
  message_type    text        NOT NULL,
  idempotency_key text        NOT NULL,
  outcome         text        NOT NULL,
  type            text        NOT NULL,
  content_type    text        NOT NULL,
  payload         bytea,
  answered_at     timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (consumer_group, message_type, idempotency_key)
);
CREATE INDEX answers_answered_at ON troupe.answers (consumer_group, answered_at);

-- Runs of messages that may have ended their process: a row is there while one goes on after a crash.
CREATE TABLE troupe.started (
  lease_id   integer     NOT NULL,
  topic_id   uuid        NOT NULL,
  "offset"   bigint      NOT NULL,
  starts     integer     NOT NULL DEFAULT 1,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (lease_id, topic_id, "offset")
);
