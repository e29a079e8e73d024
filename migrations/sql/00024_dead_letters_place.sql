-- +goose Up

-- After a log was cut, another message has the place of one that is a dead letter: both must be found here.
CREATE UNIQUE INDEX dead_letters_place ON troupe.dead_letters (consumer_group, topic_id, partition, "offset", message_id, redrives);
ALTER TABLE troupe.dead_letters DROP CONSTRAINT dead_letters_consumer_group_topic_id_partition_offset_key;
