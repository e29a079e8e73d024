-- +goose Up

-- Since when a message waits whose type no member had a handler for. Such a run counts no attempt, but has an error and a next
-- try. Null: a member had a handler when it last ran the message, or it has not run.
ALTER TABLE troupe.held
  ADD COLUMN unhandled_since timestamptz,
  DROP CONSTRAINT held_check,
  DROP CONSTRAINT held_check1,
  ADD CHECK ((last_error IS NULL) = (next_try IS NULL)),
  ADD CHECK (attempts = 0 OR last_error IS NOT NULL),
  ADD CHECK (attempts > 0 OR last_error IS NULL OR unhandled_since IS NOT NULL);
ALTER TABLE troupe.local_work
  ADD COLUMN unhandled_since timestamptz,
  DROP CONSTRAINT local_work_check3,
  ADD CHECK (attempts = 0 OR last_error IS NOT NULL),
  ADD CHECK (attempts > 0 OR last_error IS NULL OR unhandled_since IS NOT NULL);
