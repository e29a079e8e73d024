-- +goose Up

-- schedules has a row for each schedule, which starts a saga or sends a message at the times of a cron expression. troupe schedule set
-- writes it, and the coordinators of the database run it: docs/schedules.md.
CREATE TABLE troupe.schedules (
  name         text        PRIMARY KEY CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
  seed         uuid        NOT NULL DEFAULT gen_random_uuid(), -- the messages' ids are derived from it, the name and the occurrence
  cron         text        NOT NULL,
  zone         text        NOT NULL,                           -- its name in the tz database
  catch_up     integer     NOT NULL DEFAULT 1 CHECK (catch_up BETWEEN 0 AND 100), -- how many missed occurrences run late: the latest ones
  saga         text,                                           -- the type of the saga that starts; or:
  topic        text,                                           -- the topic of the message that is sent, with key and type
  key          text,                                           -- null: the schedule's name
  type         text,
  data         jsonb       NOT NULL DEFAULT '{}',              -- the saga's variables, or the message's payload
  next_at      timestamptz NOT NULL,                           -- the next occurrence
  last_at      timestamptz,                                    -- the last occurrence that was run
  ran_at       timestamptz,                                    -- when the last occurrence was run
  requested_at timestamptz,                                    -- the time of an additional occurrence that an operator requested
  paused_at    timestamptz,
  set_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  error        text,                                           -- of the last failed try of the occurrence at next_at or requested_at
  tries        integer     NOT NULL DEFAULT 0,                 -- failed tries of that occurrence
  retry_at     timestamptz,
  CHECK ((saga IS NULL) <> (topic IS NULL) AND (topic IS NULL) = (type IS NULL) AND (topic IS NOT NULL OR key IS NULL)),
  CHECK (jsonb_typeof(data) = 'object' AND octet_length(data::text) <= 131072),
  -- Programs read all schedules of a database at once. A null passes.
  CHECK (least(next_at, last_at, ran_at, requested_at, paused_at, set_at, retry_at) >= '0001-01-01 00:00Z' AND
         greatest(next_at, last_at, ran_at, requested_at, paused_at, set_at, retry_at) < '10000-01-01 00:00Z'),
  CHECK (octet_length(cron) + octet_length(zone) + coalesce(octet_length(saga), 0) + coalesce(octet_length(topic), 0)
         + coalesce(octet_length(key), 0) + coalesce(octet_length(type), 0) + coalesce(octet_length(error), 0) <= 16384)
) WITH (fillfactor = 50);

-- schedule_changes records each action of an operator on a schedule. An operator's program inserts rows; no program changes them.
CREATE TABLE troupe.schedule_changes (
  position bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  actor    text        NOT NULL CHECK (actor <> ''),  -- the operator, as the program states
  role     text        NOT NULL DEFAULT session_user, -- the role, as the server states
  action   text        NOT NULL CHECK (action IN ('set', 'pause', 'resume', 'run', 'delete')),
  reason   text        NOT NULL CHECK (reason <> ''),
  name     text        NOT NULL,
  change   text        NOT NULL,                      -- in words, without data
  CONSTRAINT schedule_changes_size CHECK (octet_length(actor)::bigint + octet_length(reason) + octet_length(change) <= 131072)
);
CREATE INDEX schedule_changes_name ON troupe.schedule_changes (name, position);
