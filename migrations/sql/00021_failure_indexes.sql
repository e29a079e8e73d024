-- +goose Up

-- Only rows that block others are looked for by their key. Of rows that wait there may be a million of one key, and each of
-- them in a hash index made the next one slower: 200,000 took a minute.
DROP INDEX troupe.outbox_failures_order_key;
CREATE INDEX outbox_failures_blocking_key ON troupe.outbox_failures USING hash (order_key) WHERE status <> 'waiting';
CREATE INDEX outbox_failures_blocking ON troupe.outbox_failures (position) WHERE status <> 'waiting';
DROP INDEX troupe.mapped_failures_order_key;
CREATE INDEX mapped_failures_blocking_key ON troupe.mapped_failures USING hash (order_key) WHERE status <> 'waiting';
