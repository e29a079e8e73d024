-- +goose Up

-- How the participant that counted the last failed attempt would write the message's dead letter, so that one that an
-- operator releases is the same. Null: it waits behind another, or a version without these columns wrote the row.
ALTER TABLE troupe.held
  ADD COLUMN handler        text,
  ADD COLUMN hop            text,    -- "order.payment", whose topics get the copy and the event
  ADD COLUMN source         text,    -- ce_source of the event
  ADD COLUMN letter_headers integer; -- the profiles of other frameworks' headers: 1 Spring, 2 Connect
