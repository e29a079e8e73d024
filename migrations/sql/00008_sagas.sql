-- +goose Up

-- Sagas. Their coordinator writes these tables.

-- saga_definitions holds the definitions that sagas were started with: each is unchanged as long as one of them runs.
CREATE TABLE troupe.saga_definitions (
  hash       text        PRIMARY KEY, -- hexadecimal SHA-256 of the definition
  saga       text        NOT NULL,
  version    integer     NOT NULL,
  definition text        NOT NULL,    -- canonical JSON; as text, since jsonb would print it otherwise
  created_at timestamptz NOT NULL DEFAULT now(),
  -- Each coordinator reads all definitions of its types, and the console lists all, with their times.
  CHECK (octet_length(hash) <= 64 AND octet_length(saga) <= 63 AND octet_length(definition) <= 1048576),
  CHECK (created_at >= '0001-01-01 00:00Z' AND created_at < '10000-01-01 00:00Z')
);

-- sagas has one row for each instance of a saga.
CREATE TABLE troupe.sagas (
  id             text        PRIMARY KEY, -- saga, a slash, key
  saga           text        NOT NULL,
  key            text        NOT NULL,    -- the business key
  hop            text        NOT NULL,    -- the coordinator's, flow.name
  consumer_group text        NOT NULL,    -- the coordinator's
  definition     text        NOT NULL,    -- saga_definitions.hash; no foreign key, whose check would lock that one row in every start
  version        integer     NOT NULL CHECK (version > 0), -- compared and increased by every decision
  status         text        NOT NULL CHECK (status IN ('waiting', 'running', 'compensating', 'parked', 'completed', 'compensated', 'abandoned')),
  steps          text        NOT NULL,    -- the running ones, for people to read
  reason         text,
  state          jsonb       NOT NULL,
  wake_at        timestamptz,             -- when its deadlines are checked next
  started_at     timestamptz NOT NULL,
  updated_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  ended_at       timestamptz,
  content_type   text        NOT NULL DEFAULT 'application/json', -- how its coordinator encodes messages, for an operator's program that sends one
  CHECK (id = saga || '/' || key),
  -- Programs cannot read other times. A null passes.
  CHECK (least(wake_at, started_at, updated_at, ended_at) >= '0001-01-01 00:00Z' AND
         greatest(wake_at, started_at, updated_at, ended_at) < '10000-01-01 00:00Z'),
  CHECK ((ended_at IS NOT NULL) = (status IN ('completed', 'compensated', 'abandoned'))),
  -- See held_size in 00004_participant.sql. The steps that a definition allows have up to 72 kB of names. The state has no limit here: the
  -- check would convert all of it to text in each decision. No list reads it, and the page of a saga checks its size first.
  CONSTRAINT sagas_size CHECK (
    octet_length(hop)::bigint + octet_length(consumer_group) + octet_length(definition) + octet_length(steps)
    + coalesce(octet_length(reason), 0) + octet_length(content_type) <= 131072)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
-- No column of these indexes changes while a saga runs, so that its updates leave them alone. A list over all statuses sorts a page
-- of each, and a key is looked up as an id of each saga: every further index costs each start and each end.
CREATE INDEX sagas_by_status ON troupe.sagas (status, started_at, id);
CREATE INDEX sagas_by_saga ON troupe.sagas (saga, status, started_at, id);

-- saga_events holds the history of each saga: one row for each version. Folding the events gives sagas.state. Operators' programs
-- insert rows, too; no program changes them. recorded_at and role come from the server: no role of a program may set them. The
-- columns at, actor and reason hold the program's own statement.
CREATE TABLE troupe.saga_events (
  saga_id     text        NOT NULL,
  version     integer     NOT NULL,
  at          timestamptz NOT NULL,
  kind        text        NOT NULL, -- started, answered, observed, fired, or an operator's action
  event       jsonb       NOT NULL,
  moments     jsonb       NOT NULL, -- StepStarted, StepCompleted, …, in their order
  actor       text,
  reason      text,
  recorded_at timestamptz DEFAULT clock_timestamp(),
  role        text        DEFAULT session_user,
  PRIMARY KEY (saga_id, version),
  -- The reason may be a text of a message.
  CONSTRAINT saga_events_size CHECK (octet_length(kind)::bigint + coalesce(octet_length(actor), 0) <= 65536 AND octet_length(reason) <= 104857600)
);
-- The actions of operators: other rows have no actor.
CREATE INDEX saga_events_actions ON troupe.saga_events (recorded_at) WHERE actor IS NOT NULL;

-- saga_log lists the moments of saga_events one by one. A role that may write saga_events may write other JSON: that has no moments.
CREATE VIEW troupe.saga_log AS
SELECT e.saga_id, e.version, m.number, e.at, m.moment ->> 'what' AS what, m.moment ->> 'step' AS step,
       m.moment ->> 'why' AS why, e.kind, e.actor, e.recorded_at, e.role
FROM troupe.saga_events AS e
CROSS JOIN LATERAL jsonb_array_elements(CASE jsonb_typeof(e.moments) WHEN 'array' THEN e.moments END) WITH ORDINALITY AS m (moment, number);

-- saga_associations holds the variables by which events find sagas that have not ended. Long values are hashed.
CREATE TABLE troupe.saga_associations (
  saga     text NOT NULL,
  variable text NOT NULL,
  value    text NOT NULL,
  saga_id  text NOT NULL,
  PRIMARY KEY (saga, variable, value, saga_id)
);
CREATE INDEX saga_associations_saga ON troupe.saga_associations (saga_id);

-- saga_stash holds events that came before their saga, or before the step that awaits them. They do not expire while the coordinator does
-- not run: see inbox_groups.coordinated_at.
CREATE TABLE troupe.saga_stash (
  position   bigint      GENERATED ALWAYS AS IDENTITY,
  saga       text        NOT NULL,
  variable   text        NOT NULL,
  value      text        NOT NULL,
  saga_id    text        NOT NULL DEFAULT '',    -- the event is kept for this saga; empty: for the next saga of the value
  shared     boolean     NOT NULL DEFAULT false, -- another saga of the value got the event too
  message_id text        NOT NULL,
  event      jsonb       NOT NULL,
  bytes      integer     NOT NULL GENERATED ALWAYS AS (octet_length(event::text)) STORED,
  expires_at timestamptz,
  kept_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (saga, variable, value, saga_id, message_id),
  CONSTRAINT saga_stash_expires CHECK ((saga_id = '') = (expires_at IS NOT NULL))
);
CREATE INDEX saga_stash_expires_at ON troupe.saga_stash (saga, expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX saga_stash_saga_id ON troupe.saga_stash (saga_id) WHERE saga_id <> '';

-- saga_locks holds the locks of sagas and the sagas that wait for them: the lowest position of each name has the lock.
CREATE TABLE troupe.saga_locks (
  name     text        NOT NULL,
  saga_id  text        NOT NULL UNIQUE,
  position bigint      GENERATED ALWAYS AS IDENTITY,
  since    timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (name, position),
  CHECK (since >= '0001-01-01 00:00Z' AND since < '10000-01-01 00:00Z')
);
