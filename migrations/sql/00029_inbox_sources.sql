-- +goose Up

-- An id that is no unique UUID is stored with 16 hex digits of a hash of its source behind "~". This finds the messages of
-- one id, whatever their sources.
CREATE INDEX inbox_sources ON troupe.inbox (left(message_id, -17)) WHERE left(right(message_id, 17), 1) = '~';
