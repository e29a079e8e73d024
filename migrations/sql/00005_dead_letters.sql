-- +goose Up

-- Dead letters and their repair.

-- error_fingerprint returns the error without the values of one message: quoted values, UUIDs, hex and numbers become a star. A word
-- of hex needs a digit, or "defaced" would be one.
CREATE FUNCTION troupe.error_fingerprint(error text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
AS $$
  SELECT left(
    regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(
      error,
      '"[^"]*"|`[^`]*`', '"*"', 'g'),
      '(^|[^[:alnum:]])''[^'']*''(?![[:alnum:]])', '\1''*''', 'g'),
      '\m[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\M', '*', 'gi'),
      '\m(0x[0-9a-f]+|(?=[a-f]*[0-9])[0-9a-f]{8,})\M', '*', 'gi'),
      '[0-9]+([.,:][0-9]+)*', '*', 'g'),
    300)
$$;

-- error_cause returns the group of a dead letter: 12 digits that are the same for the same cause. convert_to is only STABLE because
-- of other encodings than the one named here.
CREATE FUNCTION troupe.error_cause(consumer_group text, error_class text, handler text, error text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
AS $$
  SELECT left(encode(sha256(convert_to(
    concat_ws(E'\n', consumer_group, error_class, handler, troupe.error_fingerprint(error)), 'UTF8')), 'hex'), 12)
$$;

-- dead_letters holds the messages that are not tried again until an operator acts. Participants insert them; operators edit, redrive
-- and discard them. This table is authoritative: the topic dlq of the hop gets a copy.
CREATE TABLE troupe.dead_letters (
  id              uuid        PRIMARY KEY DEFAULT troupe.uuidv7(),
  consumer_group  text        NOT NULL,
  handler         text        NOT NULL,
  error_class     text        NOT NULL CHECK (error_class <> ''), -- participant.Classes
  error           text        NOT NULL,
  attempts        integer     NOT NULL,
  topic           text        NOT NULL,
  topic_id        uuid        NOT NULL,
  partition       integer     NOT NULL,
  "offset"        bigint      NOT NULL,
  key             bytea,
  headers         bytea       NOT NULL, -- as in outbox.raw_headers
  payload         bytea,
  message_id      text        NOT NULL,
  message_type    text        NOT NULL,
  correlation_id  text        NOT NULL,
  redrives        integer     NOT NULL DEFAULT 0,
  status          text        NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'redriven', 'discarded')),
  first_failed_at timestamptz NOT NULL,
  last_failed_at  timestamptz NOT NULL,
  created_at      timestamptz NOT NULL DEFAULT now(),
  cause           text GENERATED ALWAYS AS (troupe.error_cause(consumer_group, error_class, handler, error)) STORED,
  edited_payload  bytea,                -- a redrive sends it instead of payload; null: the payload was not edited
  CHECK (least(first_failed_at, last_failed_at, created_at) >= '0001-01-01 00:00Z' AND
         greatest(first_failed_at, last_failed_at, created_at) < '10000-01-01 00:00Z'),
  -- See held_size in 00004_participant.sql.
  CONSTRAINT dead_letters_size CHECK (
    octet_length(consumer_group)::bigint + octet_length(handler) + octet_length(error_class) + octet_length(error) + octet_length(topic)
    + octet_length(message_id) + octet_length(message_type) + octet_length(correlation_id) <= 65536
    AND coalesce(octet_length(key), 0)::bigint + octet_length(headers) + coalesce(octet_length(payload), 0) <= 104857600
    AND octet_length(edited_payload) <= 104857600)
);
-- With the message's id: after a log was cut, another message may have the offset of one that is a dead letter.
CREATE UNIQUE INDEX dead_letters_place ON troupe.dead_letters (consumer_group, topic_id, partition, "offset", message_id, redrives);
CREATE INDEX dead_letters_open ON troupe.dead_letters (error_class, handler, id) WHERE status = 'open';
-- By the order in which they failed, which is the order in which they are redriven.
CREATE INDEX dead_letters_order ON troupe.dead_letters (last_failed_at, id) WHERE status = 'open';
CREATE INDEX dead_letters_cause ON troupe.dead_letters (cause, last_failed_at, id) WHERE status = 'open';
-- Retention removes closed ones, the oldest first.
CREATE INDEX dead_letters_closed ON troupe.dead_letters (created_at, id) WHERE status <> 'open';
CREATE INDEX dead_letters_ever ON troupe.dead_letters (cause);
CREATE INDEX dead_letters_message ON troupe.dead_letters (message_id);
-- Dead letters of messages without ce_id are found by their partition and offset, without the hash of their record.
CREATE INDEX dead_letters_unnamed ON troupe.dead_letters (left(message_id, -17)) WHERE left(right(message_id, 17), 1) = '~';
CREATE INDEX dead_letters_correlation ON troupe.dead_letters (correlation_id);
-- A hash index, since a key may be longer than a B-tree's entry.
CREATE INDEX dead_letters_key ON troupe.dead_letters USING hash (key);

-- repairs records each action of an operator on a dead letter, a held message or an unreadable batch. An operator's program inserts
-- rows; no program changes them.
CREATE TABLE troupe.repairs (
  position       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at             timestamptz NOT NULL DEFAULT clock_timestamp(),
  actor          text        NOT NULL CHECK (actor <> ''),   -- the operator, as the program states
  role           text        NOT NULL DEFAULT session_user,  -- the role, as the server states
  action         text        NOT NULL CHECK (action IN ('edit', 'redrive', 'discard', 'retry', 'dead-letter', 'skip')),
  reason         text        NOT NULL,
  dead_letter_id uuid,                                       -- null: no dead letter, or the message had been handled
  consumer_group text        NOT NULL,
  topic          text        NOT NULL,
  partition      integer     NOT NULL,
  "offset"       bigint      NOT NULL,
  message_id     text        NOT NULL,
  payload_before bytea,                                      -- this and payload_after of an edit
  payload_after  bytea,
  CHECK (reason <> '' OR action IN ('redrive', 'retry')),
  -- The limits of dead_letters, plus room for actor and reason.
  CONSTRAINT repairs_size CHECK (
    octet_length(actor)::bigint + octet_length(reason) + octet_length(consumer_group) + octet_length(topic) <= 131072
    AND octet_length(payload_before) <= 104857600 AND octet_length(payload_after) <= 104857600)
);
CREATE INDEX repairs_dead_letter ON troupe.repairs (dead_letter_id, position);
CREATE INDEX repairs_message ON troupe.repairs (message_id, position);
CREATE INDEX repairs_at ON troupe.repairs (at);
