-- +goose Up

-- Tables other than troupe.outbox that a relay publishes by a mapping.

-- mapped_tables has one row for each such table, which the relay writes: it has the columns of relay_state.
CREATE TABLE troupe.mapped_tables (
  name        text        PRIMARY KEY, -- schema.table
  shard       integer     NOT NULL UNIQUE GENERATED ALWAYS AS IDENTITY (INCREMENT BY -1 START WITH -1) CHECK (shard < 0), -- its lease in relay_leases
  source      text        NOT NULL DEFAULT 'poll' CHECK (source IN ('wal', 'poll')), -- poll: it was not streamed yet
  system_id   text        NOT NULL DEFAULT '',
  timeline    integer     NOT NULL DEFAULT 0,
  published   pg_snapshot,
  sweep       pg_snapshot,
  lsn         pg_lsn,
  updated_at  timestamptz NOT NULL DEFAULT now(),
  publication text,
  slot        text,                     -- the slot that lsn belongs to
  CHECK (updated_at >= '0001-01-01 00:00Z' AND updated_at < '10000-01-01 00:00Z')
);

-- mapped_failures holds the rows of mapped tables that could not be published at the first try, and the rows that wait behind them.
-- It contains the row itself, since many services delete it in the transaction that inserts it. The relay writes it; an operator
-- retries or discards parked rows.
CREATE TABLE troupe.mapped_failures (
  position        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- in the order of the log
  table_name      text        NOT NULL REFERENCES troupe.mapped_tables (name),
  id              uuid        NOT NULL, -- the event's id, or made from it if that is no UUID
  event_id        text        NOT NULL, -- as in the row; empty: it has none
  topic           text        NOT NULL, -- empty: it has none
  order_key       bytea,                -- the row's key as bytes; null: nothing waits behind the row
  status          text        NOT NULL CHECK (status IN ('retrying', 'parked', 'waiting')),
  attempts        integer     NOT NULL CHECK (attempts > 0 OR status = 'waiting' AND attempts = 0),
  max_attempts    integer     NOT NULL,
  next_try        timestamptz,
  last_error      text        NOT NULL,
  first_failed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  row             jsonb       NOT NULL, -- a Row of package internal/mapping
  row_bytes       integer     NOT NULL GENERATED ALWAYS AS (octet_length(row::text)) STORED, -- uncompressed size, by which a relay limits its claims
  commit_lsn      pg_lsn,               -- of its transaction; null: it was read from the table, or from a slot that was replaced
  commit_row      bigint,               -- its number among the transaction's rows of the table
  UNIQUE (table_name, id),
  CHECK ((status = 'retrying') = (next_try IS NOT NULL)),
  CHECK (least(next_try, first_failed_at) >= '0001-01-01 00:00Z' AND
         greatest(next_try, first_failed_at) < '10000-01-01 00:00Z')
);
-- As for outbox_failures.
CREATE INDEX mapped_failures_blocking_key ON troupe.mapped_failures USING hash (order_key) WHERE status <> 'waiting';
-- The relay reads each second which rows of a table block others. A million may wait behind them.
CREATE INDEX mapped_failures_blocking ON troupe.mapped_failures (table_name, position) WHERE status <> 'waiting';
CREATE INDEX mapped_failures_next_try ON troupe.mapped_failures (table_name, next_try) WHERE status = 'retrying';

-- A relay changes only the records of its own outbox: of troupe.outbox, if its role may delete rows there, and of a table with a mapping,
-- if its role may read that. Otherwise the relay of one table could take the lease of another, move its progress, and publish or
-- delete its failed rows. The rights of an operator's roles, which cannot take a lease, are in their grants.

-- The session's search_path may have functions of the same names. pg_temp comes last: if it is not named, Postgres looks for tables and
-- types there first, and a temporary table pg_class of the role would decide.

-- may_relay reports whether the current role may change the records of a table with a mapping, or of troupe.outbox: null. A table that every
-- role may read or create, such as one of pg_catalog or a temporary one, is none: with the records of many such tables a relay could hide the
-- ones of another outbox in lists, which have an end.
CREATE FUNCTION troupe.may_relay(table_name text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
  SELECT pg_has_role(l.relowner, 'USAGE')
      OR NOT has_column_privilege(l.oid, 'term', 'UPDATE')
      OR table_name IS NULL AND has_table_privilege('troupe.outbox', 'DELETE')
      OR EXISTS (
           SELECT
           FROM pg_class c
           JOIN pg_namespace n ON n.oid = c.relnamespace
           WHERE n.nspname = split_part(table_name, '.', 1)
             AND c.relname = substr(table_name, strpos(table_name, '.') + 1)
             AND n.nspname !~ '^(pg_|(information_schema|troupe)$)'
             AND c.relkind IN ('r', 'p')
             AND has_any_column_privilege(c.oid, 'SELECT'))
  FROM pg_class l
  WHERE l.oid = 'troupe.relay_leases'::regclass
$$;

-- +goose StatementBegin
CREATE FUNCTION troupe.refuse_record_of_another_relay() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  RAISE insufficient_privilege USING
    MESSAGE = format('role %s may not change records of the relay of another outbox in %I.%I', current_user, TG_TABLE_SCHEMA, TG_TABLE_NAME),
    HINT = 'A relay needs the rights of outbox-relay grants relay, or of mapped-relay with SELECT on its table.';
END
$$;

CREATE FUNCTION troupe.check_mapped_failures() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  names text[] := ARRAY(SELECT DISTINCT table_name FROM changed);
BEGIN
  IF TG_OP = 'UPDATE' THEN
    names := names || ARRAY(SELECT DISTINCT table_name FROM before);
  END IF;
  IF NOT (SELECT coalesce(bool_and(troupe.may_relay(name)), true) FROM unnest(names) name) THEN
    RAISE insufficient_privilege USING
      MESSAGE = format('role %s may not change records of the relay of another outbox in troupe.mapped_failures', current_user),
      HINT = 'A relay needs the rights of outbox-relay grants mapped-relay, with SELECT on its table.';
  END IF;
  RETURN NULL;
END
$$;

-- may_relay_shard is may_relay for a shard, as in relay_leases. No role but the owner may take a shard that no table has.
CREATE FUNCTION troupe.may_relay_shard(of integer) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  table_name text;
BEGIN
  IF of < 0 THEN
    SELECT coalesce(max(m.name), '') INTO table_name FROM troupe.mapped_tables m WHERE m.shard = of;
  END IF;
  RETURN troupe.may_relay(table_name);
END
$$;

-- may_take_slot reports whether the current role may store a slot in the state of an outbox: a table with a mapping, or troupe.outbox if the
-- name is null. A relay refuses a slot that is another outbox's, so no role may name it as the slot of its own. The relay's list_slot_users.sql
-- and read_slot_of_outbox.sql find a slot's owner by the same rules. A role with the rights of an older version may not read all states: only
-- the readable ones are checked.
CREATE FUNCTION troupe.may_take_slot(table_name text, slot_name text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  own_updated_at timestamptz; -- when the outbox stored its state with the slot, if the slot is its own already
BEGIN
  IF table_name IS NULL THEN
    SELECT s.updated_at INTO own_updated_at FROM troupe.relay_state s WHERE s.slot = slot_name AND s.source = 'wal';
  ELSE
    IF has_column_privilege('troupe.mapped_tables', 'slot', 'SELECT') THEN
      SELECT t.updated_at INTO own_updated_at FROM troupe.mapped_tables t WHERE t.name = table_name AND t.slot = slot_name;
    END IF;
    IF NOT troupe.may_relay(NULL) AND has_column_privilege('troupe.relay_state', 'slot', 'SELECT') THEN
      PERFORM
      FROM (SELECT s.slot, s.source, s.updated_at FROM troupe.relay_state s ORDER BY s.updated_at DESC LIMIT 1) AS newest
      WHERE newest.slot = slot_name
        AND newest.updated_at > coalesce(own_updated_at, '-infinity')
        AND (newest.source = 'wal'
             OR EXISTS (SELECT FROM troupe.relay_leases l WHERE l.shard = 0 AND l.source = 'wal' AND l.expires_at > clock_timestamp()));
      IF FOUND THEN
        RETURN false;
      END IF;
    END IF;
  END IF;
  IF has_column_privilege('troupe.mapped_tables', 'slot', 'SELECT') THEN
    PERFORM
    FROM troupe.mapped_tables t
    JOIN pg_namespace n ON n.nspname = split_part(t.name, '.', 1)
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = substr(t.name, strpos(t.name, '.') + 1)
    WHERE t.slot = slot_name
      AND t.name IS DISTINCT FROM table_name
      AND t.updated_at > coalesce(own_updated_at, '-infinity')
      AND NOT troupe.may_relay(t.name);
    RETURN NOT FOUND;
  END IF;
  RETURN true;
END
$$;

CREATE FUNCTION troupe.refuse_slot_of_another_outbox() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  RAISE insufficient_privilege USING
    MESSAGE = format('slot %s is the slot of another outbox, whose records role %s may not change', NEW.slot, current_user),
    HINT = 'Give this relay another slot.';
END
$$;
-- +goose StatementEnd

CREATE TRIGGER relay_leases_own BEFORE INSERT OR UPDATE ON troupe.relay_leases
FOR EACH ROW WHEN (NOT troupe.may_relay_shard(NEW.shard)) EXECUTE FUNCTION troupe.refuse_record_of_another_relay();
CREATE TRIGGER relay_leases_own_before BEFORE UPDATE ON troupe.relay_leases
FOR EACH ROW WHEN (OLD.shard <> NEW.shard) EXECUTE FUNCTION troupe.refuse_record_of_another_relay();
CREATE TRIGGER relay_slot_samples_own BEFORE INSERT OR UPDATE ON troupe.relay_slot_samples
FOR EACH ROW WHEN (NOT troupe.may_relay_shard(NEW.shard)) EXECUTE FUNCTION troupe.refuse_record_of_another_relay();
CREATE TRIGGER relay_slot_samples_own_before BEFORE UPDATE ON troupe.relay_slot_samples
FOR EACH ROW WHEN (OLD.shard <> NEW.shard) EXECUTE FUNCTION troupe.refuse_record_of_another_relay();
CREATE TRIGGER mapped_tables_own BEFORE INSERT OR UPDATE ON troupe.mapped_tables
FOR EACH ROW WHEN (NOT troupe.may_relay(NEW.name)) EXECUTE FUNCTION troupe.refuse_record_of_another_relay();
CREATE TRIGGER mapped_tables_own_before BEFORE UPDATE ON troupe.mapped_tables
FOR EACH ROW WHEN (OLD.name <> NEW.name AND NOT troupe.may_relay(OLD.name)) EXECUTE FUNCTION troupe.refuse_record_of_another_relay();
-- The last outbox to store its state with a slot owns it, so a new time takes the slot, too: while a table does not exist, its slot may have
-- become another outbox's.
CREATE TRIGGER mapped_tables_slot BEFORE INSERT OR UPDATE ON troupe.mapped_tables
FOR EACH ROW WHEN (NEW.slot IS NOT NULL AND NOT troupe.may_take_slot(NEW.name, NEW.slot)) EXECUTE FUNCTION troupe.refuse_slot_of_another_outbox();
CREATE TRIGGER relay_state_slot BEFORE INSERT OR UPDATE ON troupe.relay_state
FOR EACH ROW WHEN (NEW.source = 'wal' AND NOT troupe.may_take_slot(NULL, NEW.slot)) EXECUTE FUNCTION troupe.refuse_slot_of_another_outbox();
-- A million rows may fail at once: mapped_failures is checked once for each statement.
CREATE TRIGGER mapped_failures_inserted AFTER INSERT ON troupe.mapped_failures
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION troupe.check_mapped_failures();
CREATE TRIGGER mapped_failures_updated AFTER UPDATE ON troupe.mapped_failures
REFERENCING OLD TABLE AS before NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION troupe.check_mapped_failures();
CREATE TRIGGER mapped_failures_deleted AFTER DELETE ON troupe.mapped_failures
REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION troupe.check_mapped_failures();
