-- +goose Up

-- The publication that the stored place of a slot belongs to. Null: an older version stored it, or the relay polls.
ALTER TABLE troupe.relay_state ADD COLUMN publication text;
ALTER TABLE troupe.mapped_tables ADD COLUMN publication text;
