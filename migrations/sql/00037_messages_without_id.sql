-- +goose Up

-- A run that counts no attempt has an error and a next try also if its message waits for a call that is under way. Until now
-- unhandled_since was set for each such run.
ALTER TABLE troupe.held DROP CONSTRAINT held_check2;
ALTER TABLE troupe.local_work DROP CONSTRAINT local_work_check7;

-- Dead letters of messages without ce_id are found by their place, without the hash of their record.
CREATE INDEX dead_letters_unnamed ON troupe.dead_letters (left(message_id, -17)) WHERE left(right(message_id, 17), 1) = '~';
