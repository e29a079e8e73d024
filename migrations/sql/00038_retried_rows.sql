-- +goose Up

-- A claim takes the rows that are due for their next try the longest, and only some of them: without these indexes it would sort
-- all rows in trouble.
CREATE INDEX outbox_trouble_next_try ON troupe.outbox_trouble (next_try) WHERE status = 'retrying';
CREATE INDEX mapped_trouble_next_try ON troupe.mapped_trouble (table_name, next_try) WHERE status = 'retrying';
