-- +goose Up

-- How the participant that counted the last failed attempt would write the entry's dead letter, as in troupe.held, so that one that
-- an operator releases is the same. Null: it has not failed, or a version without these columns counted the attempt.
ALTER TABLE troupe.local_work
  ADD COLUMN handler        text,
  ADD COLUMN hop            text,
  ADD COLUMN source         text,
  ADD COLUMN letter_headers integer;
