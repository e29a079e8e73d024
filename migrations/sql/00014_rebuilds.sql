-- +goose Up

-- Rebuilds: a group's handlers of events read their topics again, from a time on (docs/rebuild.md). An operator's program inserts
-- rebuilds; participants run them.

-- handlers lists the handlers of each group. The member that started last has written the rows of its group.
CREATE TABLE troupe.handlers (
  consumer_group text NOT NULL,
  topic          text NOT NULL,
  handler        text NOT NULL, -- "order.summary/PaymentCharged", or "order.summary/all" for OnAll
  refusal        text CHECK (octet_length(refusal) <= 65536), -- why it cannot be rebuilt; null: it can
  PRIMARY KEY (consumer_group, topic, handler)
);

-- rebuilds has one row for each rebuild. A group has at most one that is not finished. Rows are never deleted: their generations must
-- not be used again.
CREATE TABLE troupe.rebuilds (
  id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  consumer_group text        NOT NULL,
  generation     integer     NOT NULL CHECK (generation BETWEEN 1 AND 32767), -- in the inbox its messages have the redrive count 65536 * generation
  handlers       text[]      NOT NULL CHECK (coalesce(array_ndims(handlers), 0) = 1 AND array_position(handlers, NULL) IS NULL), -- programs read no others
  from_time      timestamptz NOT NULL,
  emit           boolean     NOT NULL,                                        -- its handlers write to the outbox and schedule deadlines
  started_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  cancelled_at   timestamptz,
  finished_at    timestamptz,                                                 -- likewise, if it was cancelled
  UNIQUE (consumer_group, generation),
  -- Each member of the group reads its rebuilds.
  CONSTRAINT rebuilds_size CHECK (cardinality(handlers) <= 10000 AND octet_length(array_to_string(handlers, '')) <= 1048576),
  CHECK (least(from_time, started_at, cancelled_at, finished_at) >= '0001-01-01 00:00Z' AND
         greatest(from_time, started_at, cancelled_at, finished_at) < '10000-01-01 00:00Z')
);
CREATE UNIQUE INDEX rebuilds_open ON troupe.rebuilds (consumer_group) WHERE finished_at IS NULL;

-- rebuild_partitions has a row for each partition of a rebuild's topics. The owner of the partition begins it when it takes the lease:
-- it sets the watermark of the lease back to from_offset. From then on the watermark is also the progress of the rebuild.
CREATE TABLE troupe.rebuild_partitions (
  rebuild     bigint  NOT NULL REFERENCES troupe.rebuilds (id),
  topic       text    NOT NULL,
  partition   integer NOT NULL,
  topic_id    uuid    NOT NULL, -- as in leases
  handlers    text[]  NOT NULL CHECK (coalesce(array_ndims(handlers), 0) = 1 AND array_position(handlers, NULL) IS NULL), -- the rebuild's handlers of this topic
  from_offset bigint  NOT NULL CHECK (from_offset >= 0),
  watermark   bigint,           -- of the lease, before it was set back; null: the partition has not begun
  epoch       integer,          -- likewise
  until       bigint,           -- the offset behind the last message that had been handled then
  began_at    timestamptz,
  ended_low   bigint[] NOT NULL DEFAULT '{}', -- the runs of offsets above the watermark that had ended then, each with its two ends
  ended_high  bigint[] NOT NULL DEFAULT '{}',
  ended_epoch integer[] NOT NULL DEFAULT '{}', -- as in inbox_offsets
  undone_at   timestamptz,      -- when the owner set the watermark forward again, after the rebuild was cancelled
  PRIMARY KEY (rebuild, topic, partition),
  CONSTRAINT rebuild_partitions_size CHECK (cardinality(handlers) <= 10000 AND octet_length(array_to_string(handlers, '')) <= 1048576),
  CHECK ((until IS NULL) = (watermark IS NULL) AND (until IS NULL) = (epoch IS NULL) AND (until IS NULL) = (began_at IS NULL)),
  CHECK (least(began_at, undone_at) >= '0001-01-01 00:00Z' AND
         greatest(began_at, undone_at) < '10000-01-01 00:00Z')
);

-- rebuild_changes records each action of an operator on a rebuild. An operator's program inserts rows; no program changes them.
CREATE TABLE troupe.rebuild_changes (
  position bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  actor    text        NOT NULL CHECK (actor <> ''),  -- the operator, as the program states
  role     text        NOT NULL DEFAULT session_user, -- the role, as the server states
  action   text        NOT NULL CHECK (action IN ('start', 'cancel')),
  reason   text        NOT NULL CHECK (reason <> ''),
  rebuild  bigint      NOT NULL,
  change   text        NOT NULL,                      -- in words
  CONSTRAINT rebuild_changes_size CHECK (octet_length(actor)::bigint + octet_length(reason) + octet_length(change) <= 2097152)
);
CREATE INDEX rebuild_changes_rebuild ON troupe.rebuild_changes (rebuild, position);

-- in_rebuild is the trigger that discards what a rebuild without emit writes. The participant sets troupe.rebuild for the transaction.
-- +goose StatementBegin
CREATE FUNCTION troupe.in_rebuild() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
  RETURN NULL;
END
$$;
-- +goose StatementEnd

-- Triggers of one event fire in the order of their names: in_rebuild comes before the triggers of local topics, local_….
CREATE TRIGGER in_rebuild BEFORE INSERT ON troupe.outbox FOR EACH ROW
WHEN (current_setting('troupe.rebuild', true) = 'on') EXECUTE FUNCTION troupe.in_rebuild();

CREATE TRIGGER in_rebuild BEFORE INSERT OR UPDATE OR DELETE ON troupe.deadlines FOR EACH ROW
WHEN (current_setting('troupe.rebuild', true) = 'on') EXECUTE FUNCTION troupe.in_rebuild();

-- An expectation that begins with an event of the hop begins where the event is written. That event is discarded, and so is the deadline: the
-- expectation would be missed, and its alert sent.
CREATE TRIGGER in_rebuild BEFORE INSERT OR UPDATE ON troupe.expectations FOR EACH ROW
WHEN (current_setting('troupe.rebuild', true) = 'on') EXECUTE FUNCTION troupe.in_rebuild();

-- saga_in_rebuild refuses a change of a saga by such a handler. The saga's commands would be discarded: it would wait for ever, or compensate
-- steps that never ran.
-- +goose StatementBegin
CREATE FUNCTION troupe.saga_in_rebuild() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
  RAISE EXCEPTION 'a rebuild without emit starts and changes no saga: cancel the rebuild (troupe rebuild cancel), and write the read model in a handler of its own';
END
$$;
-- +goose StatementEnd

CREATE TRIGGER in_rebuild BEFORE INSERT OR UPDATE ON troupe.sagas FOR EACH ROW
WHEN (current_setting('troupe.rebuild', true) = 'on') EXECUTE FUNCTION troupe.saga_in_rebuild();

-- unsettled_letters counts the dead letters of a group that are open, and the redriven ones whose message has not come yet: the inbox does
-- not have it. These messages have not taken effect, and no partition begins its part of a rebuild before they have: the rebuild would
-- handle them without their writes, and the redriven messages would be duplicates. As long as the inbox keeps an id, it is known whether
-- the message has come; a redrive before that counts as handled. Dead letters of the group's open rebuild do not count: each is of a
-- message that had taken effect, in a partition that has begun. Called in a sub-select without a table, it runs once for each statement.
-- +goose StatementBegin
CREATE FUNCTION troupe.unsettled_letters(of_group text) RETURNS bigint
LANGUAGE sql STABLE
AS $$
  WITH open AS (SELECT generation FROM troupe.rebuilds WHERE consumer_group = of_group AND finished_at IS NULL)
  SELECT (SELECT count(*)
          FROM troupe.dead_letters AS d
          WHERE d.consumer_group = of_group AND d.status = 'open' AND d.redrives >> 16 IS DISTINCT FROM (SELECT generation FROM open))
    + (SELECT count(*)
       FROM troupe.repairs AS r
       JOIN troupe.dead_letters AS d ON d.id = r.dead_letter_id AND d.consumer_group = of_group AND d.status = 'redriven'
         AND d.redrives >> 16 IS DISTINCT FROM (SELECT generation FROM open)
       CROSS JOIN LATERAL (
         SELECT CASE WHEN d.message_id ~ '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$' THEN d.message_id::uuid END AS v7) AS u
       WHERE r.action = 'redrive'
         AND r.at > now() - make_interval(days => coalesce(
           (SELECT nullif(g.days, 0) FROM troupe.inbox_groups AS g WHERE g.consumer_group = of_group), 14))
         AND NOT EXISTS (
           SELECT
           FROM troupe.inbox_recent AS i -- in the slot of its day
           WHERE i.slot = ((('x' || left(replace(u.v7::text, '-', ''), 12))::bit(48)::bigint / 86400000) % 32)::smallint
             AND i.id = u.v7 AND i.consumer_group = of_group AND i.redrive > d.redrives
           OFFSET 0)
         AND NOT EXISTS (
           SELECT FROM troupe.inbox AS i WHERE i.consumer_group = of_group AND i.message_id = d.message_id AND i.redrive > d.redrives OFFSET 0)
         AND NOT EXISTS (
           SELECT
           FROM troupe.inbox AS i -- with the hash of its source, as inbox_sources has it
           WHERE left(i.message_id, -17) = d.message_id AND left(right(i.message_id, 17), 1) = '~' AND i.consumer_group = of_group
             AND i.redrive > d.redrives
           OFFSET 0))
$$;
-- +goose StatementEnd
