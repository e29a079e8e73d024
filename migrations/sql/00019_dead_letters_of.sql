-- +goose Up

-- What became of a key or of a flow, and groups of letters that are open no more. A key may be longer than a B-tree can hold.
CREATE INDEX dead_letters_key ON troupe.dead_letters USING hash (key);
CREATE INDEX dead_letters_correlation ON troupe.dead_letters (correlation_id);
CREATE INDEX dead_letters_ever ON troupe.dead_letters (cause);
