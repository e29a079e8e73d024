-- +goose Up

-- Only rows that block others are looked for by their key. Of rows that wait there may be a million of one key, and each of
-- them in a hash index made the next one slower: 200,000 took a minute.
DROP INDEX troupe.outbox_trouble_order_key;
CREATE INDEX outbox_trouble_blocking_key ON troupe.outbox_trouble USING hash (order_key) WHERE status <> 'waiting';
CREATE INDEX outbox_trouble_blocking ON troupe.outbox_trouble (position) WHERE status <> 'waiting';
DROP INDEX troupe.mapped_trouble_order_key;
CREATE INDEX mapped_trouble_blocking_key ON troupe.mapped_trouble USING hash (order_key) WHERE status <> 'waiting';
