-- +goose Up

-- The watcher of flows; see package internal/flow/watch. Only the watcher writes these tables.

-- watch_names numbers the names of flows, topics and types.
CREATE TABLE troupe.watch_names (
  id   integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text    NOT NULL UNIQUE
);

-- watch_flows has one row for each watched flow, with the declarations of its services.
CREATE TABLE troupe.watch_flows (
  flow     integer     PRIMARY KEY REFERENCES troupe.watch_names,
  declared jsonb       NOT NULL, -- services, as in reactions.json
  answer   interval    NOT NULL, -- how long a reaction may take
  seen_at  timestamptz           -- every message that the brokers had then is stored
);

-- watch_offsets holds the next offset of each partition. It changes in the transaction that stores the messages.
CREATE TABLE troupe.watch_offsets (
  flow      integer NOT NULL REFERENCES troupe.watch_flows,
  topic     integer NOT NULL REFERENCES troupe.watch_names,
  topic_id  uuid    NOT NULL, -- Kafka's id: a topic that is created again has another one
  partition integer NOT NULL,
  next      bigint  NOT NULL,
  PRIMARY KEY (flow, topic, topic_id, partition)
);

-- watch_marks holds the time up to which messages were checked against the rules that allow this much time for an answer.
CREATE TABLE troupe.watch_marks (
  flow     integer     NOT NULL REFERENCES troupe.watch_flows,
  within   interval    NOT NULL,
  judged   timestamptz NOT NULL,
  PRIMARY KEY (flow, within)
);

-- watch_days is the ring of watch_messages and watch_findings: day n of Unix time is in slot n % 16. A slot is emptied when its day is past the retention.
CREATE TABLE troupe.watch_days (
  slot smallint PRIMARY KEY,
  day  integer  NOT NULL
);

-- watch_messages holds the envelopes of all messages of watched flows, without payloads.
CREATE TABLE troupe.watch_messages (
  slot             smallint    NOT NULL,
  flow             integer     NOT NULL,
  topic            integer     NOT NULL,
  partition        integer     NOT NULL,
  "offset"         bigint      NOT NULL,
  at               timestamptz NOT NULL, -- when it was published
  written_at       timestamptz NOT NULL, -- ce_time
  type             integer     NOT NULL,
  outcome          smallint    NOT NULL, -- 0 none, 1 success, 2 failure, 3 exhausted
  id               uuid        NOT NULL, -- or its hash
  correlation      uuid        NOT NULL,
  causation        uuid,
  key              text        NOT NULL, -- or its hash
  id_text          text,                 -- if it is no UUID
  flow_text        text
) PARTITION BY LIST (slot);
ALTER TABLE troupe.watch_messages REPLICA IDENTITY FULL;
CREATE INDEX watch_messages_causation ON troupe.watch_messages (causation) WHERE causation IS NOT NULL;
CREATE INDEX watch_messages_correlation ON troupe.watch_messages (correlation, at);
CREATE INDEX watch_messages_first ON troupe.watch_messages (correlation, at) WHERE causation IS NULL;
CREATE INDEX watch_messages_key ON troupe.watch_messages (key);
CREATE INDEX watch_messages_at ON troupe.watch_messages (at);

-- watch_findings holds the declared messages that did not come; came_at is set if one came later.
CREATE TABLE troupe.watch_findings (
  slot        smallint    NOT NULL,
  flow        integer     NOT NULL,
  rule        integer     NOT NULL, -- its number among the rules of the declaration
  about       uuid        NOT NULL, -- the message, or the hash of the join's key
  topic       integer     NOT NULL,
  type        integer     NOT NULL,
  correlation uuid        NOT NULL,
  flow_text   text,                 -- the correlation if it is no UUID
  key         text        NOT NULL,
  at          timestamptz NOT NULL, -- of the message
  found_at    timestamptz NOT NULL,
  came_at     timestamptz,
  PRIMARY KEY (flow, rule, about, slot)
) PARTITION BY LIST (slot);
CREATE INDEX watch_findings_key ON troupe.watch_findings (rule, key) WHERE came_at IS NULL;
CREATE INDEX watch_findings_correlation ON troupe.watch_findings (correlation);

-- watch_unexpected counts messages that no service declares.
CREATE TABLE troupe.watch_unexpected (
  flow        integer     NOT NULL REFERENCES troupe.watch_flows,
  topic       integer     NOT NULL REFERENCES troupe.watch_names,
  type        integer     NOT NULL REFERENCES troupe.watch_names,
  messages    bigint      NOT NULL,
  first_at    timestamptz NOT NULL,
  last_at     timestamptz NOT NULL,
  correlation uuid        NOT NULL, -- of the last one
  flow_text   text,
  PRIMARY KEY (flow, topic, type)
);

-- +goose StatementBegin
DO $$
BEGIN
  FOR slot IN 0..15 LOOP
    EXECUTE format('CREATE TABLE troupe.watch_messages_%s PARTITION OF troupe.watch_messages FOR VALUES IN (%s)', slot, slot);
    EXECUTE format('ALTER TABLE troupe.watch_messages_%s REPLICA IDENTITY FULL', slot); -- as troupe.inbox_offsets
    EXECUTE format('CREATE TABLE troupe.watch_findings_%s PARTITION OF troupe.watch_findings FOR VALUES IN (%s)', slot, slot);
    INSERT INTO troupe.watch_days VALUES (slot, 0);
  END LOOP;
END $$;
-- +goose StatementEnd
