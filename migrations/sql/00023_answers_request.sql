-- +goose Up

-- An idempotency key stands for one request. A command with the key of another one is refused, which this tells: SHA-256 of
-- the command's key and body. Null for a saga's command, for one that was redriven, and for rows of versions before.
ALTER TABLE troupe.answers ADD COLUMN request_hash bytea;
