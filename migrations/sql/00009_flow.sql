-- +goose Up

-- Joins and expectations of services without an orchestrator; see package flow. Participants write these tables.

-- joins has one row for each join, from the first of its messages on. Messages that come at once wait for each other at this row.
CREATE TABLE troupe.joins (
  consumer_group text        NOT NULL,
  name           text        NOT NULL,
  key            text        NOT NULL, -- of its messages, or its hash
  status         text        NOT NULL,
  arrived        text[]      NOT NULL, -- "topic type" of each message that has come, in that order
  broken_by      text,                 -- "topic type" of the failure
  news           boolean     NOT NULL DEFAULT true, -- whether the last statement changed another column
  began_at       timestamptz NOT NULL DEFAULT now(),
  ended_at       timestamptz,
  forget_at      timestamptz,
  PRIMARY KEY (consumer_group, name, key),
  CHECK (status IN ('open', 'complete', 'expired', 'broken')),
  CHECK ((status = 'open') = (ended_at IS NULL) AND (ended_at IS NULL) = (forget_at IS NULL)),
  CHECK ((status = 'broken') = (broken_by IS NOT NULL))
);
CREATE INDEX joins_forget ON troupe.joins (forget_at) WHERE forget_at IS NOT NULL;
CREATE INDEX joins_open ON troupe.joins (began_at) WHERE status = 'open';

-- join_parts holds the messages of open joins, until they end.
CREATE TABLE troupe.join_parts (
  consumer_group text  NOT NULL,
  name           text  NOT NULL,
  key            text  NOT NULL,
  part           text  NOT NULL, -- as in arrived
  headers        bytea NOT NULL,
  payload        bytea,
  PRIMARY KEY (consumer_group, name, key, part)
);

-- expectations has one row for each expectation, from its first message on. It ends with the expected message or by time; a
-- message that comes in the other order or too late finds the row. A member of the service sets missed_at when the time is
-- over; it needs no broker for this. raised_at is set later, when the message of the deadline was handled.
CREATE TABLE troupe.expectations (
  consumer_group text        NOT NULL,
  name           text        NOT NULL,
  key            text        NOT NULL, -- of its messages, or its hash
  after_at       timestamptz,          -- when the message that starts it came; null: not yet
  due_at         timestamptz,          -- when its time is over
  met_at         timestamptz,          -- when the expected message came
  missed_at      timestamptz,          -- when a member recorded that the time is over
  raised_at      timestamptz,          -- when the event that reports it was written
  news           boolean     NOT NULL DEFAULT true, -- whether the last statement changed another column
  headers        bytea,                -- of the message that starts it, while it waits
  payload        bytea,
  alert_id       uuid,                 -- id of both alerts: that the event is missing, and that it came late
  alert_at       timestamptz,          -- when an alert is due, or due again; null: none waits
  alerted_at     timestamptz,          -- when the receiver accepted the last alert
  forget_at      timestamptz,          -- null while it waits
  PRIMARY KEY (consumer_group, name, key),
  CHECK ((after_at IS NOT NULL AND met_at IS NULL AND raised_at IS NULL) = (forget_at IS NULL)),
  CHECK ((after_at IS NULL) = (due_at IS NULL) AND (after_at IS NULL) = (alert_id IS NULL)),
  CHECK (least(after_at, due_at, met_at, missed_at, raised_at, alert_at, alerted_at, forget_at) >= '0001-01-01 00:00Z' AND
         greatest(after_at, due_at, met_at, missed_at, raised_at, alert_at, alerted_at, forget_at) < '10000-01-01 00:00Z')
);
CREATE INDEX expectations_forget ON troupe.expectations (forget_at) WHERE forget_at IS NOT NULL;
CREATE INDEX expectations_waiting ON troupe.expectations (consumer_group, due_at)
  WHERE missed_at IS NULL AND (met_at IS NULL OR raised_at IS NOT NULL);
CREATE INDEX expectations_missed ON troupe.expectations (consumer_group, missed_at) WHERE missed_at IS NOT NULL;
CREATE INDEX expectations_alert ON troupe.expectations (consumer_group, alert_at) WHERE alert_at IS NOT NULL;
