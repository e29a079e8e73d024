-- +goose Up

-- The relay reads each second which rows of a table block others. A million may wait behind them.
CREATE INDEX mapped_failures_blocking ON troupe.mapped_failures (table_name, position) WHERE status <> 'waiting';
