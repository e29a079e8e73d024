-- +goose Up

-- recorded_at and role come from the server: no role of a program may set them. The columns at, actor and reason hold what the
-- program states. Both are null in an event from before this migration. The defaults are set apart from the columns, so that
-- the table is not rewritten.
ALTER TABLE troupe.saga_events
  ADD COLUMN recorded_at timestamptz,
  ADD COLUMN role        text;
ALTER TABLE troupe.saga_events
  ALTER COLUMN recorded_at SET DEFAULT clock_timestamp(),
  ALTER COLUMN role SET DEFAULT session_user;

CREATE OR REPLACE VIEW troupe.saga_log AS
SELECT e.saga_id, e.version, m.number, e.at, m.moment ->> 'what' AS what, m.moment ->> 'step' AS step,
       m.moment ->> 'why' AS why, e.kind, e.actor, e.recorded_at, e.role
FROM troupe.saga_events AS e
CROSS JOIN LATERAL jsonb_array_elements(e.moments) WITH ORDINALITY AS m (moment, number);
