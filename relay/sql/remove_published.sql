-- Reads the next @rows rows above position @after. If the term is still ours, it deletes each of these rows that a stream published and
-- whose transaction here began at least @age transactions ago. It uses @published as claim_rows.sql does. It returns whether the term is
-- ours, the last position that it read, whether there may be rows above it, and the number of deleted rows.
WITH lease AS MATERIALIZED (
  SELECT term
  FROM troupe.relay_leases
  WHERE shard = @shard
    AND holder = @holder
    AND term = @term
    AND expires_at > clock_timestamp()
  FOR SHARE
), next AS MATERIALIZED (
  SELECT position, id, xid, xmin, troupe.outbox_inserted_by(xid, xmin) AS inserted_by
  FROM troupe.outbox
  WHERE position > @after
  ORDER BY position
  LIMIT @rows
), gone AS (
  DELETE FROM troupe.outbox o
  USING next AS n
  WHERE o.position = n.position
    AND o.id = n.id
    AND pg_snapshot_xmax(pg_current_snapshot())::text::bigint - n.inserted_by::text::bigint >= @age::bigint
    AND (pg_visible_in_snapshot(n.xid, @published::pg_snapshot) OR pg_visible_in_snapshot(n.inserted_by, @published::pg_snapshot))
    AND pg_visible_in_snapshot(troupe.outbox_inserted_by('9223372036854775807', n.xmin), @published::pg_snapshot)
    AND NOT EXISTS (SELECT FROM troupe.outbox_failures t WHERE t.position = n.position AND t.id = n.id)
    AND EXISTS (SELECT FROM lease)
  RETURNING o.position
)
SELECT (SELECT count(*) FROM lease) AS held, coalesce(max(position), @after) AS last, count(*) = @rows AS more,
       (SELECT count(*) FROM gone) AS deleted
FROM next
