-- The next rows that are published and still here, above @position. Failed rows are left out.
SELECT position, id, topic, key, key_bytes, type, headers, raw_headers, payload, created_at
FROM troupe.outbox o
WHERE position > @position
  AND position <= @last
  AND (pg_visible_in_snapshot(o.xid, @snapshot::text::pg_snapshot)
       OR pg_visible_in_snapshot(troupe.outbox_inserted_by(o.xid, o.xmin), @snapshot::text::pg_snapshot))
  AND (@topic::text = '' OR topic = @topic)
  AND (@since::timestamptz IS NULL OR created_at >= @since)
  AND (@until::timestamptz IS NULL OR created_at < @until)
  AND NOT EXISTS (SELECT FROM troupe.outbox_failures t WHERE t.position = o.position AND t.id = o.id)
ORDER BY position
LIMIT @rows
