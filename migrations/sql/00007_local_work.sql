-- +goose Up

-- Local topics: messages that stay in this database and never reach Kafka.

-- local_topics lists the local topics with their groups. Each topic has a trigger on the outbox that inserts a row for each of its
-- groups into troupe.local_work instead. troupe.make_local and troupe.end_local write this table and the triggers; the triggers
-- decide.
CREATE TABLE troupe.local_topics (
  topic          text        NOT NULL,
  consumer_group text        NOT NULL,
  created_at     timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (topic, consumer_group)
);

-- local_work holds the entries that participants take from here instead of from Kafka. The trigger inserts them; participants change
-- and delete them.
--
--   pending ──► in progress ──► done
--      ▲             │     └──► failed: a dead letter
--      └─ next try ──┘
CREATE TABLE troupe.local_work (
  position        bigint      NOT NULL, -- as in the outbox: order within a key
  consumer_group  text        NOT NULL,
  id              uuid        NOT NULL,
  topic           text        NOT NULL,
  key             text,
  key_bytes       bytea,
  type            text        NOT NULL,
  headers         jsonb       NOT NULL,
  raw_headers     bytea,
  payload         bytea,
  created_at      timestamptz NOT NULL,
  hold_key        bytea       NOT NULL, -- SHA-256 of the key, or of this one entry without a key: such entries run in order
  status          text        NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'in progress', 'done', 'failed')),
  attempts        integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0), -- runs that failed
  max_attempts    integer,              -- by the participant that took the entry last
  next_try        timestamptz,          -- null: at once
  error_class     text,
  last_error      text,
  first_failed_at timestamptz,
  last_failed_at  timestamptz,
  locked_at       timestamptz,
  locked_by       integer,              -- the participant, which holds an advisory lock on this number while it lives
  term            integer     NOT NULL DEFAULT 0, -- rises each time the entry is taken: only the last participant may end it
  crashes         integer     NOT NULL DEFAULT 0, -- times that it was in progress when its participant died
  ended_at        timestamptz,
  unhandled_since timestamptz,          -- as in troupe.held
  handler         text,                 -- this and the next three columns: how the participant that counted the last failed
  hop             text,                 -- attempt would write the entry's dead letter, as in troupe.held; null: no failed attempt
  source          text,
  letter_headers  integer,
  PRIMARY KEY (position, consumer_group), -- in this order, or a planner without statistics reads all of a group
  CHECK ((status = 'in progress') = (locked_at IS NOT NULL)),
  CHECK ((locked_at IS NULL) = (locked_by IS NULL)),
  CHECK ((status IN ('done', 'failed')) = (ended_at IS NOT NULL)),
  CHECK (attempts = 0 OR last_error IS NOT NULL),
  CHECK (status <> 'done' OR attempts = 0),
  CHECK (status <> 'failed' OR attempts > 0),
  CHECK (ended_at IS NULL OR next_try IS NULL),
  -- Not created_at, which a writer sets.
  CHECK (least(next_try, first_failed_at, last_failed_at, locked_at, ended_at, unhandled_since) >= '0001-01-01 00:00Z' AND
         greatest(next_try, first_failed_at, last_failed_at, locked_at, ended_at, unhandled_since) < '10000-01-01 00:00Z'),
  -- As of outbox, whose trigger writes here before its checks.
  CHECK (type <> '' AND jsonb_typeof(headers) = 'object'),
  CONSTRAINT local_work_size CHECK (
    coalesce(octet_length(payload)::bigint, 0) + octet_length(headers::text) + coalesce(octet_length(raw_headers), 0)
    + coalesce(octet_length(key), 0) + coalesce(octet_length(key_bytes), 0) + octet_length(type) + octet_length(topic) <= 8388608),
  -- See held_size in 00004_participant.sql.
  CONSTRAINT local_work_texts CHECK (
    octet_length(consumer_group)::bigint + coalesce(octet_length(error_class), 0) + coalesce(octet_length(last_error), 0)
    + coalesce(octet_length(handler), 0) + coalesce(octet_length(hop), 0) + coalesce(octet_length(source), 0) <= 65536)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
-- When an entry is taken for the first time, no column of these indexes changes, so that the update leaves them alone. A claim reads
-- entries that wait for their next try by their time, and walks along the keys of all others: along the keys that wait, too, it took
-- 4 seconds for 100,000 of them.
CREATE INDEX local_work_order ON troupe.local_work (consumer_group, hold_key, position) WHERE ended_at IS NULL;
CREATE INDEX local_work_at_once ON troupe.local_work (consumer_group, hold_key, position) WHERE ended_at IS NULL AND next_try IS NULL;
CREATE INDEX local_work_next_try ON troupe.local_work (consumer_group, next_try) WHERE next_try IS NOT NULL;
CREATE INDEX local_work_last_failed ON troupe.local_work (consumer_group, last_failed_at) WHERE next_try IS NOT NULL; -- as held_last_failed
CREATE INDEX local_work_ended ON troupe.local_work (consumer_group, ended_at) WHERE ended_at IS NOT NULL;

-- local_members numbers the participants of local work: local_work.locked_by.
CREATE SEQUENCE troupe.local_members AS integer CYCLE;

-- hold_key returns local_work.hold_key. STABLE, as convert_to is, or it would not be inlined.
-- +goose StatementBegin
CREATE FUNCTION troupe.hold_key(place bigint, key text, key_bytes bytea) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
  SELECT CASE
    WHEN key_bytes IS NOT NULL THEN sha256('key '::bytea || key_bytes)
    WHEN key IS NOT NULL       THEN sha256('key '::bytea || convert_to(key, 'UTF8'))
    ELSE sha256('entry '::bytea || int8send(place))
  END
$$;
-- +goose StatementEnd

-- take_local is the trigger of a local topic. The groups are its arguments, since a transaction with an old snapshot does not see a
-- new row of local_topics, but does run a new trigger. The writer needs no rights on local_work.
-- +goose StatementBegin
CREATE FUNCTION troupe.take_local() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  consumer_group text;
BEGIN
  FOREACH consumer_group IN ARRAY TG_ARGV LOOP
    INSERT INTO troupe.local_work (position, consumer_group, id, topic, key, key_bytes, type, headers, raw_headers,
                                   payload, created_at, hold_key)
    VALUES (NEW.position, consumer_group, NEW.id, NEW.topic, NEW.key, NEW.key_bytes, NEW.type, NEW.headers,
            NEW.raw_headers, NEW.payload, NEW.created_at, troupe.hold_key(NEW.position, NEW.key, NEW.key_bytes));
  END LOOP;
  RETURN NULL;
END
$$;
-- +goose StatementEnd

-- make_local makes topic local for the group: its rows in the outbox move to troupe.local_work, and rows that are written later go
-- there. It waits until no transaction is open that wrote to the outbox, and blocks writers meanwhile. It changes nothing if the
-- topic is local for the group already. No participant reads a local topic from Kafka.
--
-- Under wal the outbox keeps published rows until their partition is dropped. Those do not move: moved, they would take effect once
-- more as soon as the inbox has forgotten them. Failed rows move: they were not published, although the snapshot sees them. A state
-- of another cluster says nothing about the rows here, as for the relay.
--
-- If a topic of events became local for another group within the last hour, the group also gets all entries that the other one has got:
-- none of them will reach Kafka, and the groups of a flow start one after the other. Entries are kept for an hour after their end, so none
-- of them is gone. Most of them are copied before writers are blocked. Commands have one group: another one is a new name, and must not run them once more.
-- +goose StatementBegin
CREATE FUNCTION troupe.make_local(topic text, consumer_group text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
  groups text;
  later  boolean;
BEGIN
  IF coalesce(make_local.topic, '') = '' OR coalesce(make_local.consumer_group, '') = '' THEN
    RAISE EXCEPTION 'troupe.make_local: topic and consumer group must not be empty';
  END IF;
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'troupe.make_local: wants isolation level read committed, to see what others have committed meanwhile';
  END IF;
  IF EXISTS (SELECT FROM troupe.local_topics AS l WHERE l.topic = make_local.topic AND l.consumer_group = make_local.consumer_group) THEN
    RETURN;
  END IF;
  later := coalesce(make_local.topic LIKE '%.events'
    AND (SELECT min(l.created_at) FROM troupe.local_topics AS l WHERE l.topic = make_local.topic) > clock_timestamp() - interval '1 hour', false);
  IF later THEN -- most of the entries, while others write: 100,000 of them take a second
    INSERT INTO troupe.local_work (position, consumer_group, id, topic, key, key_bytes, type, headers, raw_headers, payload,
                                   created_at, hold_key)
    SELECT DISTINCT ON (position) position, make_local.consumer_group, id, topic, key, key_bytes, type, headers, raw_headers, payload,
           created_at, hold_key
    FROM troupe.local_work AS w
    WHERE w.topic = make_local.topic AND w.consumer_group <> make_local.consumer_group
    ORDER BY position
    ON CONFLICT DO NOTHING;
  END IF;
  LOCK TABLE troupe.outbox IN SHARE ROW EXCLUSIVE MODE;
  INSERT INTO troupe.local_topics (topic, consumer_group) VALUES (make_local.topic, make_local.consumer_group)
  ON CONFLICT DO NOTHING;
  SELECT string_agg(quote_literal(l.consumer_group), ', ' ORDER BY l.consumer_group) INTO groups
  FROM troupe.local_topics AS l
  WHERE l.topic = make_local.topic;
  EXECUTE format('CREATE OR REPLACE TRIGGER %I BEFORE INSERT ON troupe.outbox FOR EACH ROW WHEN (NEW.topic = %L) EXECUTE FUNCTION troupe.take_local(%s)',
                 'local_' || md5(make_local.topic), make_local.topic, groups);
  WITH moved AS (
    DELETE FROM troupe.outbox AS o
    WHERE o.topic = make_local.topic
      AND (EXISTS (SELECT FROM troupe.outbox_failures AS t WHERE t.position = o.position)
           OR NOT EXISTS (SELECT
                          FROM troupe.relay_state AS s
                          WHERE s.system_id = (SELECT system_identifier::text FROM pg_control_system())
                            AND (pg_visible_in_snapshot(o.xid, s.published)
                              OR pg_visible_in_snapshot(troupe.outbox_inserted_by(o.xid, o.xmin), s.published))
                            AND pg_visible_in_snapshot(troupe.outbox_inserted_by('9223372036854775807', o.xmin), s.published)))
    RETURNING o.*
  ), cured AS (
    DELETE FROM troupe.outbox_failures AS t WHERE t.topic = make_local.topic
  )
  INSERT INTO troupe.local_work (position, consumer_group, id, topic, key, key_bytes, type, headers, raw_headers, payload,
                                 created_at, hold_key)
  SELECT position, make_local.consumer_group, id, topic, key, key_bytes, type, headers, raw_headers, payload, created_at,
         troupe.hold_key(position, key, key_bytes)
  FROM moved;
  later := later OR coalesce(make_local.topic LIKE '%.events' -- another group may have made it local while this one waited for the lock
    AND (SELECT min(l.created_at) FROM troupe.local_topics AS l WHERE l.topic = make_local.topic) > clock_timestamp() - interval '1 hour', false);
  IF later THEN -- the entries since the first copy
    INSERT INTO troupe.local_work (position, consumer_group, id, topic, key, key_bytes, type, headers, raw_headers, payload,
                                   created_at, hold_key)
    SELECT DISTINCT ON (position) position, make_local.consumer_group, id, topic, key, key_bytes, type, headers, raw_headers, payload,
           created_at, hold_key
    FROM troupe.local_work AS w
    WHERE w.topic = make_local.topic AND w.consumer_group <> make_local.consumer_group
      AND NOT EXISTS (SELECT
                      FROM troupe.local_work AS c
                      WHERE c.position = w.position AND c.consumer_group = make_local.consumer_group)
    ORDER BY position
    ON CONFLICT DO NOTHING;
  END IF;
END
$$;
-- +goose StatementEnd

-- end_local returns topic to Kafka: entries that have not ended move to the outbox, in their order, once each, and rows that are
-- written later follow them. It fails while a participant consumes the topic, of any group: stop the participants first. Each of them
-- holds a lock on the topic (lock_topics.sql). Every role that may connect can take such a lock, so the error names the sessions.
-- +goose StatementBegin
CREATE FUNCTION troupe.end_local(topic text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
  consumers text;
  sessions  text;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'troupe.end_local: wants isolation level read committed, to see what others have committed meanwhile';
  END IF;
  SELECT string_agg(DISTINCT l.consumer_group, ', ' ORDER BY l.consumer_group),
         string_agg(DISTINCT CASE WHEN k.pid IS NULL THEN 'a prepared transaction' ELSE format('process %s of role %s', k.pid, a.usename) END, ', ')
    INTO consumers, sessions
  FROM troupe.local_topics AS l
  JOIN pg_locks AS k ON k.objid = hashtext(l.consumer_group || ' ' || l.topic)::oid
  LEFT JOIN pg_stat_activity AS a ON a.pid = k.pid
  WHERE l.topic = end_local.topic
    AND k.locktype = 'advisory'
    AND k.classid = x'74727563'::integer::oid
    AND k.objsubid = 2
    AND k.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database());
  IF consumers IS NOT NULL THEN
    RAISE EXCEPTION 'troupe.end_local: members of % consume topic %: stop them first', consumers, end_local.topic
      USING DETAIL = 'The locks of members are held by ' || sessions || '.',
            HINT = 'A member whose machine is gone counts until the server has ended its session.';
  END IF;
  LOCK TABLE troupe.outbox IN ACCESS EXCLUSIVE MODE;
  EXECUTE format('DROP TRIGGER IF EXISTS %I ON troupe.outbox', 'local_' || md5(end_local.topic));
  DELETE FROM troupe.local_topics AS l WHERE l.topic = end_local.topic;
  PERFORM FROM troupe.local_work AS w
  WHERE w.topic = end_local.topic AND w.ended_at IS NULL
  FOR UPDATE NOWAIT;
  WITH gone AS (
    DELETE FROM troupe.local_work AS w WHERE w.topic = end_local.topic RETURNING w.*
  ), left_over AS (
    SELECT DISTINCT ON (position) * FROM gone WHERE ended_at IS NULL ORDER BY position
  )
  INSERT INTO troupe.outbox (id, topic, key, key_bytes, type, headers, raw_headers, payload, created_at)
  SELECT id, topic, key, key_bytes, type, headers, raw_headers, payload, created_at
  FROM left_over
  ORDER BY position;
END
$$;
-- +goose StatementEnd

-- With the right to execute take_local, a role could use it in a trigger of a table of its own, such as a temporary one, and write
-- messages for any local participant. The triggers that the owner creates need no such right.
REVOKE ALL ON FUNCTION troupe.take_local(), troupe.make_local(text, text), troupe.end_local(text) FROM PUBLIC;
