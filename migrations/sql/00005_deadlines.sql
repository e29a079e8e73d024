-- +goose Up

-- What a group's participants want to be told, and when. A due row becomes a message of the outbox, once; it is gone
-- when that message is handled, and a message whose row is gone or has another id by then is ignored.
CREATE TABLE troupe.deadlines (
  consumer_group text        NOT NULL,
  scope          text        NOT NULL, -- what it belongs to, as a rule a message's key: at most one of a name in each
  name           text        NOT NULL,
  id             uuid        NOT NULL, -- of the message; another one whenever it is scheduled again
  due_at         timestamptz NOT NULL,
  key            text,                 -- this and what follows as in troupe.outbox
  key_bytes      bytea,
  type           text        NOT NULL,
  headers        jsonb       NOT NULL,
  raw_headers    bytea,
  payload        bytea,
  scheduled_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  fired_at       timestamptz,          -- when the message was written to the outbox; null: pending
  PRIMARY KEY (consumer_group, scope, name)
);
CREATE INDEX deadlines_due ON troupe.deadlines (consumer_group, due_at) WHERE fired_at IS NULL;
