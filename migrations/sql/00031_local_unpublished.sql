-- +goose Up

-- Under wal the outbox keeps rows that were published until their partition is dropped. Those stay where they are when their topic
-- becomes local: moved, they would take effect once more as soon as the inbox has forgotten them. Failed rows were not
-- published, although the snapshot sees them. A state of another cluster says nothing about the rows here, as for the relay.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION troupe.make_local(topic text, consumer_group text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
  groups text;
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
                            AND pg_visible_in_snapshot(o.xid, s.published)))
    RETURNING o.*
  ), cured AS (
    DELETE FROM troupe.outbox_failures AS t WHERE t.topic = make_local.topic
  )
  INSERT INTO troupe.local_work (position, consumer_group, id, topic, key, key_bytes, type, headers, raw_headers, payload,
                                 created_at, hold_key)
  SELECT position, make_local.consumer_group, id, topic, key, key_bytes, type, headers, raw_headers, payload, created_at,
         troupe.hold_key(position, key, key_bytes)
  FROM moved;
END
$$;
-- +goose StatementEnd
