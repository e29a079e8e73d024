-- +goose Up

-- retention holds how long the records of this database are kept after they were closed. The owner sets keep; a relay that may act as
-- the owner removes the records that are older, and so does a participant with Local. docs/retention.md has the conditions.
--   UPDATE troupe.retention SET keep = '30 days' WHERE kind = 'sagas';
CREATE TABLE troupe.retention (
  kind      text        PRIMARY KEY CHECK (kind IN ('sagas', 'dead letters', 'repairs')),
  keep      interval    DEFAULT '90 days', -- null: for ever
  removed   bigint      NOT NULL DEFAULT 0, -- records so far: sagas, dead letters, or rows of the audit log
  passed_at timestamptz,                    -- when the last pass over all records ended; null: none has
  -- A shorter time would remove records on which messages under way depend.
  CONSTRAINT retention_keep_check CHECK (keep >= interval '1 day')
) WITH (fillfactor = 50);
INSERT INTO troupe.retention (kind) VALUES ('sagas'), ('dead letters'), ('repairs');
