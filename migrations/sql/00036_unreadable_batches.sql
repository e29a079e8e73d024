-- +goose Up

-- Batches that unpack to more than a participant accepts. The participant inserts a row when such a batch blocks its partition;
-- an operator sets skipped_at, and the participant then continues behind the batch. The operator's name and reason are a row of
-- troupe.repairs with the action skip.
CREATE TABLE troupe.unreadable_batches (
  consumer_group text        NOT NULL,
  topic          text        NOT NULL,
  topic_id       uuid        NOT NULL,
  partition      integer     NOT NULL,
  "offset"       bigint      NOT NULL, -- the batch's first
  next_offset    bigint      NOT NULL, -- the first one behind the batch
  bytes          bigint      NOT NULL, -- compressed
  found_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  skipped_at     timestamptz,
  PRIMARY KEY (consumer_group, topic_id, partition, "offset")
);

ALTER TABLE troupe.repairs
  DROP CONSTRAINT repairs_action_check,
  ADD CONSTRAINT repairs_action_check CHECK (action IN ('edit', 'redrive', 'discard', 'retry', 'release', 'skip'));
