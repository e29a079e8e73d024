-- Reads what is visible, and behind it a place in the log that every visible commit is before; in this order. The message makes
-- the stream tell when it has passed that place, and keeps a slot moving whose outbox is quiet. The publication is identified by
-- its rows in the catalog: xmin changes with each change, and xmax as soon as one is under way, before others see it. It is null
-- where the publication does not publish every row that is inserted into the table.
SELECT pg_current_snapshot()::text       AS snapshot,
       pg_current_wal_insert_lsn()::text AS lsn,
       pg_logical_emit_message(true, 'troupe', '') IS NULL,
       (SELECT concat_ws(' ', p.oid, p.xmin, p.xmax, string_agg(concat_ws(' ', r.oid, r.xmin, r.xmax), ' ' ORDER BY r.oid))
        FROM pg_publication p
        CROSS JOIN (SELECT coalesce(nullif(@relation::bigint, 0)::oid, 'troupe.outbox'::regclass) AS oid) AS own
        LEFT JOIN pg_publication_rel r
               ON r.prpubid = p.oid
              AND (r.prrelid = own.oid
                   OR r.prrelid IN (SELECT relid FROM pg_partition_ancestors(own.oid)))
        WHERE p.pubname = @publication
          AND p.pubinsert
        GROUP BY p.oid, p.xmin, p.xmax, p.puballtables, own.oid
        HAVING coalesce(bool_and(to_jsonb(r) ->> 'prqual' IS NULL AND to_jsonb(r) ->> 'prattrs' IS NULL), true)
           AND CASE
                 WHEN p.puballtables OR count(r.oid) > 0 THEN true
                 ELSE EXISTS (SELECT
                              FROM pg_publication_tables t
                              WHERE t.pubname = @publication
                                AND to_regclass(format('%I.%I', t.schemaname, t.tablename)) = own.oid)
               END)                      AS publication
