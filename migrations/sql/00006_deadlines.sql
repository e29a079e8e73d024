-- +goose Up

-- deadlines holds the messages that participants have scheduled for their own group. Participants write it. A due row becomes a
-- message of the outbox, once; the row is deleted when that message is handled, and a message whose row is gone or has another id by
-- then is ignored.
CREATE TABLE troupe.deadlines (
  consumer_group text        NOT NULL,
  scope          text        NOT NULL, -- usually a message's key: names are unique within it
  name           text        NOT NULL,
  id             uuid        NOT NULL, -- of the message; a new one whenever it is scheduled again
  due_at         timestamptz NOT NULL,
  key            text,                 -- this to payload as in troupe.outbox
  key_bytes      bytea,
  type           text        NOT NULL,
  headers        jsonb       NOT NULL,
  raw_headers    bytea,
  payload        bytea,
  scheduled_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  fired_at       timestamptz,          -- when the message was written to the outbox; null: pending
  PRIMARY KEY (consumer_group, scope, name),
  CHECK (least(due_at, scheduled_at, fired_at) >= '0001-01-01 00:00Z' AND
         greatest(due_at, scheduled_at, fired_at) < '10000-01-01 00:00Z'),
  -- As of outbox: one deadline that the outbox refuses would block all deadlines of its group.
  CHECK (type <> '' AND jsonb_typeof(headers) = 'object'),
  -- The outbox refuses larger rows, too: its limit of 8 MiB includes the topic, of 249 bytes at most.
  CONSTRAINT deadlines_size CHECK (
    coalesce(octet_length(payload)::bigint, 0) + octet_length(headers::text) + coalesce(octet_length(raw_headers), 0)
    + coalesce(octet_length(key), 0) + coalesce(octet_length(key_bytes), 0) + octet_length(type) <= 8388352)
);
CREATE INDEX deadlines_due ON troupe.deadlines (consumer_group, due_at) WHERE fired_at IS NULL;
-- Deadlines that fired and were not handled fire again.
CREATE INDEX deadlines_fired ON troupe.deadlines (consumer_group, fired_at) WHERE fired_at IS NOT NULL;
-- Retention keeps a saga as long as an event that is tried again for it waits here. A hash index, since a key may be longer than a
-- B-tree's entry.
CREATE INDEX deadlines_retry_event ON troupe.deadlines USING hash (key) WHERE name = 'retry-event';
