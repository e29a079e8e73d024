-- +goose Up

-- A database in another encoding than UTF-8 may hold text that has no form in UTF-8: any bytes in SQL_ASCII, and bytes such as 0x81
-- in WIN1252. Kafka's headers are UTF-8, so a relay sets such a row of the outbox aside.

-- text_in_utf8 returns text in UTF-8, or its bytes as they are if they cannot be converted.
-- +goose StatementBegin
CREATE FUNCTION troupe.text_in_utf8(value text) RETURNS bytea
LANGUAGE plpgsql STABLE
AS $$
BEGIN
  RETURN convert_to(value, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
  RETURN convert_to(value, getdatabaseencoding());
END
$$;
-- +goose StatementEnd

-- outbox_order_key returns the key that keeps rows in order: in UTF-8, as in Kafka. It calls text_in_utf8 only where it must, since
-- a statement that calls it for each row of a backlog is faster without. A function with an EXCEPTION clause must not run in parallel.
CREATE FUNCTION troupe.outbox_order_key(key text, key_bytes bytea) RETURNS bytea
LANGUAGE sql STABLE
AS $$
  SELECT coalesce(key_bytes, CASE WHEN getdatabaseencoding() = 'UTF8' THEN convert_to(key, 'UTF8') ELSE troupe.text_in_utf8(key) END)
$$;

-- outbox_unreadable returns the reason why a row's text cannot be converted to UTF-8; null if it can.
-- +goose StatementBegin
CREATE FUNCTION troupe.outbox_unreadable(topic text, key text, type text, headers jsonb) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  at text;
BEGIN
  at := 'topic';   PERFORM convert_to(topic, 'UTF8');
  at := 'key';     PERFORM convert_to(key, 'UTF8');
  at := 'type';    PERFORM convert_to(type, 'UTF8');
  at := 'headers'; PERFORM convert_to(headers::text, 'UTF8');
  RETURN NULL;
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
  RETURN format('column %s is not text in the encoding %s: %s', at, getdatabaseencoding(), SQLERRM);
END
$$;
-- +goose StatementEnd

CREATE OR REPLACE FUNCTION troupe.outbox_shard(key text, key_bytes bytea, id uuid, shards integer) RETURNS integer
LANGUAGE sql STABLE
AS $$
  SELECT ((hashtextextended(encode(coalesce(troupe.outbox_order_key(key, key_bytes), uuid_send(id)), 'hex') COLLATE "C", 0)
           & 9223372036854775807) % shards)::integer
$$;
