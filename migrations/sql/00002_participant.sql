-- +goose Up

-- What a group has handled. Its row commits with the handler's own rows, so a message has its effect once.
CREATE TABLE troupe.inbox (
  consumer_group text        NOT NULL,
  message_id     text        NOT NULL,
  redrive        integer     NOT NULL DEFAULT 0,
  handled_at     timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (consumer_group, message_id, redrive)
);
CREATE INDEX inbox_handled_at ON troupe.inbox (handled_at);

-- Messages whose key waits: the one that failed and has a next_try, and those that came behind it and have none.
CREATE TABLE troupe.held (
  position        bigint      GENERATED ALWAYS AS IDENTITY (CACHE 1), -- order within a key: the order of arrival
  consumer_group  text        NOT NULL,
  topic_id        uuid        NOT NULL, -- Kafka's own: a topic made anew under the same name is another one
  partition       integer     NOT NULL,
  "offset"        bigint      NOT NULL,
  topic           text        NOT NULL,
  hold_key        bytea       NOT NULL, -- SHA-256 of what waits together: the key, else this one message
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
  PRIMARY KEY (consumer_group, topic_id, partition, "offset"),
  CHECK ((attempts = 0) = (last_error IS NULL)),
  CHECK ((attempts = 0) = (next_try IS NULL))
);
CREATE INDEX held_order ON troupe.held (consumer_group, topic, partition, hold_key, position);

-- Messages that nobody will try again by himself. This table is the truth; the hop's dlq topic gets a copy.
CREATE TABLE troupe.dead_letters (
  id              uuid        PRIMARY KEY DEFAULT troupe.uuidv7(),
  consumer_group  text        NOT NULL,
  handler         text        NOT NULL,
  error_class     text        NOT NULL CHECK (error_class IN ('transient', 'permanent', 'poison', 'panic', 'timeout')),
  error           text        NOT NULL,
  attempts        integer     NOT NULL,
  topic           text        NOT NULL,
  topic_id        uuid        NOT NULL,
  partition       integer     NOT NULL,
  "offset"        bigint      NOT NULL,
  key             bytea,
  headers         bytea       NOT NULL,
  payload         bytea,
  message_id      text        NOT NULL,
  message_type    text        NOT NULL,
  correlation_id  text        NOT NULL,
  redrives        integer     NOT NULL DEFAULT 0,
  status          text        NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'redriven', 'discarded')),
  first_failed_at timestamptz NOT NULL,
  last_failed_at  timestamptz NOT NULL,
  created_at      timestamptz NOT NULL DEFAULT now(),
  UNIQUE (consumer_group, topic_id, partition, "offset")
);
CREATE INDEX dead_letters_open ON troupe.dead_letters (error_class, handler, id) WHERE status = 'open';
