-- +goose Up

-- How a saga's coordinator writes what it sends, for whoever acts on it from outside.
ALTER TABLE troupe.sagas ADD COLUMN content_type text NOT NULL DEFAULT 'application/json';
