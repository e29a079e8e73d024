-- +goose Up

-- The participant: the partitions that it owns, the messages that it has handled, and waiting messages. Participants write these
-- tables.

-- leases has one row for each partition of a topic that a group has consumed. The term rises with each owner, and a transaction of
-- an earlier term does not commit. Owner and transactions meet at an advisory lock on the id, since row locks with many holders use
-- up multixacts.
CREATE TABLE troupe.leases (
  id              integer     GENERATED ALWAYS AS IDENTITY UNIQUE,
  consumer_group  text        NOT NULL,
  topic           text        NOT NULL,
  partition       integer     NOT NULL,
  term            bigint      NOT NULL DEFAULT 1,
  owner           text        NOT NULL CHECK (octet_length(owner) <= 65536),
  taken_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
  released_at     timestamptz,          -- null while it is owned, and after an owner that crashed
  topic_id        uuid,                 -- the topic that the watermark belongs to
  watermark       bigint      NOT NULL DEFAULT -1, -- every message up to this offset is finished
  watermark_epoch integer     NOT NULL DEFAULT -1, -- leader epoch of that message
  PRIMARY KEY (consumer_group, topic, partition)
);

-- inbox_offsets holds the finished offsets above the watermark: one row per transaction.
CREATE TABLE troupe.inbox_offsets (
  lease_id integer  NOT NULL,
  topic_id uuid     NOT NULL,
  low      bigint   NOT NULL,
  high     bigint   NOT NULL,
  offsets  bigint[],              -- null: all from low to high
  epoch    integer  NOT NULL      -- the highest leader epoch among them
);
CREATE INDEX inbox_offsets_lease ON troupe.inbox_offsets (lease_id, high);
-- Another program's publication may be for all tables, and Postgres then refuses a delete from a table without a replica identity.
ALTER TABLE troupe.inbox_offsets REPLICA IDENTITY FULL;

-- inbox holds the ids of the messages that a group has handled, other than those in inbox_recent. A row commits with the handler's
-- own rows, so that a message has its effect once.
CREATE TABLE troupe.inbox (
  consumer_group text        NOT NULL,
  message_id     text        NOT NULL,
  redrive        integer     NOT NULL DEFAULT 0,
  handled_at     timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (consumer_group, message_id, redrive)
);
CREATE INDEX inbox_handled_at ON troupe.inbox (handled_at);
-- An id that is no unique UUID is stored with 16 hex digits of a hash of its source behind "~". This finds the messages of
-- one id, whatever their sources.
CREATE INDEX inbox_sources ON troupe.inbox (left(message_id, -17)) WHERE left(right(message_id, 17), 1) = '~';

-- inbox_recent holds the ids that are UUIDv7 of the last days: by their day in a ring of tables, each of which is emptied before its
-- next day. They are unique across the ring since an id has one day.
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

-- inbox_slots holds the day whose ids each slot of inbox_recent accepts.
CREATE TABLE troupe.inbox_slots (
  slot smallint PRIMARY KEY,
  day  integer  NOT NULL
);

-- inbox_groups holds each group's retention of the inbox: the ring forgets by the longest.
CREATE TABLE troupe.inbox_groups (
  consumer_group    text    PRIMARY KEY,
  days              integer NOT NULL,
  barrier_forgotten timestamptz, -- when the youngest deleted answer to a saga's command was given; null: none was deleted. A command that was
                                 -- sent later has its answer in troupe.answers, or was never answered
  coordinated_at    timestamptz  -- when the group's coordinator of sagas last ran, up to half a minute earlier; null: it has none
);

-- answers holds the answer to each command with an idempotency key, for the same key under another id. A command of a saga is known
-- by its saga, step and operation, so that its answer is found under whatever id and idempotency key it comes again.
CREATE TABLE troupe.answers (
  consumer_group  text        NOT NULL,
  message_type    text        NOT NULL, -- of a saga's command: the operation and the step, such as 'forward charge'
  idempotency_key text        NOT NULL, -- of a saga's command: the saga's id
  outcome         text        NOT NULL,
  type            text        NOT NULL,
  content_type    text        NOT NULL,
  payload         bytea,
  answered_at     timestamptz NOT NULL DEFAULT now(),
  command_key     text,                 -- the idempotency key of a saga's command; null: a command of no saga
  request_hash    bytea,                -- SHA-256 of the command's key and body, which refuses another command with the same idempotency key;
                                        -- null: a saga's command, or one that was redriven
  PRIMARY KEY (consumer_group, message_type, idempotency_key)
);
-- Answers to sagas' commands are kept longer than others. The group is not in front: a planner that had seen the table empty chose
-- such an index instead of the primary key, and each lookup of an answer then read all answers of the group.
CREATE INDEX answers_of_sagas_answered_at ON troupe.answers (answered_at) WHERE command_key IS NOT NULL;
CREATE INDEX answers_of_others_answered_at ON troupe.answers (answered_at) WHERE command_key IS NULL;

-- held holds the messages of keys that wait: the failed one, with a next_try, and the later ones of the key, without.
CREATE TABLE troupe.held (
  position        bigint      GENERATED ALWAYS AS IDENTITY (CACHE 1), -- order within a key: the order of arrival
  consumer_group  text        NOT NULL,
  topic_id        uuid        NOT NULL, -- Kafka's id: a topic that is created again under the same name has another one
  partition       integer     NOT NULL,
  "offset"        bigint      NOT NULL,
  topic           text        NOT NULL,
  hold_key        bytea       NOT NULL, -- SHA-256 of the key, or of this one message without a key
  key             bytea,
  headers         bytea       NOT NULL, -- as in outbox.raw_headers
  payload         bytea,
  message_time    timestamptz NOT NULL, -- the record's timestamp
  attempts        integer     NOT NULL DEFAULT 0,
  max_attempts    integer     NOT NULL,
  next_try        timestamptz,
  error_class     text,
  last_error      text,
  first_failed_at timestamptz,
  last_failed_at  timestamptz,
  created_at      timestamptz NOT NULL DEFAULT now(),
  -- From handler to letter_headers: how the participant that counted the last failed attempt would write the message's dead letter,
  -- so that one that an operator releases is the same. Null: the message waits behind another.
  handler         text,
  hop             text,                 -- "order.payment", whose topics get the copy and the event
  source          text,                 -- ce_source of the event
  letter_headers  integer,              -- the profiles of other frameworks' headers: 1 Spring, 2 Connect
  message_id      text        NOT NULL DEFAULT '',
  redrive         integer     NOT NULL DEFAULT 0,
  unhandled_since timestamptz,          -- since when no member had a handler for its type: such a run counts no attempt. Null: one had, or it has not run
  -- With the message's id and time: after a log was cut, another message may have the offset of one that is held.
  PRIMARY KEY (consumer_group, topic_id, partition, "offset", message_id, redrive, message_time),
  -- A run that counts no attempt has an error and a next try, too.
  CHECK ((last_error IS NULL) = (next_try IS NULL)),
  CHECK (attempts = 0 OR last_error IS NOT NULL),
  CHECK (least(next_try, first_failed_at, last_failed_at, created_at, unhandled_since) >= '0001-01-01 00:00Z' AND
         greatest(next_try, first_failed_at, last_failed_at, created_at, unhandled_since) < '10000-01-01 00:00Z'),
  -- Programs that list rows read these columns whole, of all services. A row of 900 MB can have 10 MB on disk. Each table that such a program
  -- reads has a check like this one. A record of Kafka that a participant reads has at most 64 MiB.
  CONSTRAINT held_size CHECK (
    octet_length(consumer_group)::bigint + octet_length(topic) + octet_length(message_id) + coalesce(octet_length(error_class), 0)
    + coalesce(octet_length(last_error), 0) + coalesce(octet_length(handler), 0) + coalesce(octet_length(hop), 0)
    + coalesce(octet_length(source), 0) <= 65536
    AND coalesce(octet_length(key), 0)::bigint + octet_length(headers) + coalesce(octet_length(payload), 0) <= 104857600)
);
CREATE INDEX held_order ON troupe.held (consumer_group, topic, partition, hold_key, position);
-- Each minute a participant looks for rows that failed in the future: the database's clock was ahead.
CREATE INDEX held_last_failed ON troupe.held (consumer_group, last_failed_at) WHERE next_try IS NOT NULL;

-- rate_limits has one row for each handler with a rate limit. Members claim permits from it, which are evenly spaced.
CREATE TABLE troupe.rate_limits (
  consumer_group text        NOT NULL,
  handler        text        NOT NULL, -- "order.payment/ChargePayment"
  next_start     timestamptz NOT NULL, -- the start of the first permit that no member has claimed
  calls          integer     NOT NULL, -- the limit: so many runs in a span, by the last claim
  span           interval    NOT NULL,
  waiting_since  timestamptz,          -- since then no claim was enough for all messages that waited; null: the last one was
  claimed_at     timestamptz,          -- null: never
  PRIMARY KEY (consumer_group, handler)
);

-- started holds the runs of messages that may have ended their process: a row exists while such a run goes on after a crash.
CREATE TABLE troupe.started (
  lease_id   integer     NOT NULL,
  topic_id   uuid        NOT NULL,
  "offset"   bigint      NOT NULL,
  starts     integer     NOT NULL DEFAULT 1,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (lease_id, topic_id, "offset")
);

-- unreadable_batches holds the batches that unpack to more than a participant accepts. The participant inserts a row when such a
-- batch blocks its partition; an operator sets skipped_at, and the participant then continues behind the batch. The operator's name
-- and reason are a row of troupe.repairs with the action skip.
CREATE TABLE troupe.unreadable_batches (
  consumer_group text        NOT NULL,
  topic          text        NOT NULL CHECK (octet_length(topic) <= 65536),
  topic_id       uuid        NOT NULL,
  partition      integer     NOT NULL,
  "offset"       bigint      NOT NULL, -- the batch's first
  next_offset    bigint      NOT NULL, -- the first one behind the batch
  bytes          bigint      NOT NULL, -- compressed
  found_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  skipped_at     timestamptz,
  PRIMARY KEY (consumer_group, topic_id, partition, "offset"),
  CHECK (least(found_at, skipped_at) >= '0001-01-01 00:00Z' AND
         greatest(found_at, skipped_at) < '10000-01-01 00:00Z')
);
