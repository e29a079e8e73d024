-- +goose Up

-- A claim takes the rows that are due for their next try the longest, and only some of them: without these indexes it would sort
-- all failed rows.
CREATE INDEX outbox_failures_next_try ON troupe.outbox_failures (next_try) WHERE status = 'retrying';
CREATE INDEX mapped_failures_next_try ON troupe.mapped_failures (table_name, next_try) WHERE status = 'retrying';
