-- +goose Up

-- Which of so many shards a row of the outbox belongs to: by its key, so that a key is one shard's; without one by its id.
-- The same for a key as text and as bytes. Stable, since only a relay's statements use it: nothing is stored by it.
CREATE FUNCTION troupe.outbox_shard(key text, key_bytes bytea, id uuid, shards integer) RETURNS integer
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
  SELECT ((hashtextextended(encode(coalesce(key_bytes, convert_to(key, 'UTF8'), uuid_send(id)), 'hex') COLLATE "C", 0)
           & 9223372036854775807) % shards)::integer
$$;

-- Into how many shards the outbox is divided stands in the row of shard 0, whose holder leads. Each change of it is a new
-- layout; the leases of the others say under which they were given, and none is given while one of another layout lasts.
ALTER TABLE troupe.relay_leases
  ADD COLUMN shards integer NOT NULL DEFAULT 1 CHECK (shards BETWEEN 1 AND 64),
  ADD COLUMN layout bigint  NOT NULL DEFAULT 0,
  ADD COLUMN wanted text;   -- the holder of a relay that holds fewer, and asks for this one
