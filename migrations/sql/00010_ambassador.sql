-- +goose Up

-- outbox_posts holds the ids of the messages that a service without a database of its own posted to its ambassador, so that an id that
-- is posted again is not written again. The ambassador writes it.
CREATE TABLE troupe.outbox_posts (
  id     uuid        PRIMARY KEY,
  digest bytea       NOT NULL, -- of the message, which refuses another message under the same id
  at     timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX outbox_posts_at ON troupe.outbox_posts (at);
