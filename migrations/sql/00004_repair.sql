-- +goose Up

-- What an error says apart from this one message: quoted values, UUIDs, hex and numbers become a star. A word of hex
-- needs a digit, or "defaced" would be one.
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

-- What dead letters are grouped by: 12 digits that say the same for the same cause. convert_to is only STABLE for the
-- sake of other encodings than the one named here.
CREATE FUNCTION troupe.error_cause(consumer_group text, error_class text, handler text, error text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
AS $$
  SELECT left(encode(sha256(convert_to(
    concat_ws(E'\n', consumer_group, error_class, handler, troupe.error_fingerprint(error)), 'UTF8')), 'hex'), 12)
$$;

ALTER TABLE troupe.dead_letters
  ADD COLUMN cause text GENERATED ALWAYS AS (troupe.error_cause(consumer_group, error_class, handler, error)) STORED,
  ADD COLUMN edited_payload bytea; -- what a redrive sends instead of payload; null: it was not edited

-- The order in which they failed, which is the order in which they are redriven.
CREATE INDEX dead_letters_order ON troupe.dead_letters (last_failed_at, id) WHERE status = 'open';
CREATE INDEX dead_letters_cause ON troupe.dead_letters (cause, last_failed_at, id) WHERE status = 'open';
CREATE INDEX dead_letters_message ON troupe.dead_letters (message_id);

-- What people did about what failed. Rows are only ever added.
CREATE TABLE troupe.repairs (
  position       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at             timestamptz NOT NULL DEFAULT clock_timestamp(),
  actor          text        NOT NULL CHECK (actor <> ''),   -- who, by his own account
  role           text        NOT NULL DEFAULT session_user,  -- who, by the database's
  action         text        NOT NULL CHECK (action IN ('edit', 'redrive', 'discard', 'retry', 'release')),
  reason         text        NOT NULL,
  dead_letter_id uuid,                                       -- null: a held message was tried again, or had been handled
  consumer_group text        NOT NULL,
  topic          text        NOT NULL,
  partition      integer     NOT NULL,
  "offset"       bigint      NOT NULL,
  message_id     text        NOT NULL,
  payload_before bytea,                                      -- of an edit, as payload_after
  payload_after  bytea,
  CHECK (reason <> '' OR action IN ('redrive', 'retry'))
);
CREATE INDEX repairs_dead_letter ON troupe.repairs (dead_letter_id, position);
CREATE INDEX repairs_message ON troupe.repairs (message_id, position);
