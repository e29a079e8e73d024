-- +goose Up

-- After a log was cut, another message has the place of one that is held: both must be stored, or the second is lost. A row of
-- an earlier version has no message id.
ALTER TABLE troupe.held
  ADD COLUMN message_id text    NOT NULL DEFAULT '',
  ADD COLUMN redrive    integer NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX held_place ON troupe.held (consumer_group, topic_id, partition, "offset", message_id, redrive, message_time);
ALTER TABLE troupe.held DROP CONSTRAINT held_pkey, ADD CONSTRAINT held_pkey PRIMARY KEY USING INDEX held_place;
