-- +goose Up

-- What a service without a database of its own had its ambassador write: the ids, so that one that is posted again is not
-- written again, and what it was, so that another message under the same id is refused.
CREATE TABLE troupe.outbox_posts (
  id     uuid        PRIMARY KEY,
  digest bytea       NOT NULL,
  at     timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX outbox_posts_at ON troupe.outbox_posts (at);
