-- Reads the visible snapshot, and then an LSN after every visible commit, in this order. Then it writes a message to the log. When the
-- stream delivers the message, it has passed the LSN. The message also advances the slot of an idle outbox.
--
-- The publication is identified by its rows in the catalog. Their xmin changes with each change. Their xmax changes as soon as a change
-- begins, before other sessions see it. The rows of its schemas are read with query_to_xml, since Postgres 14 has no such catalog. The
-- column publication is null if the publication does not publish every row that is inserted into the table, or if another table has the
-- name @table.
SELECT pg_current_snapshot()::text       AS snapshot,
       pg_current_wal_insert_lsn()::text AS lsn,
       pg_logical_emit_message(true, 'troupe', '') IS NULL,
       (SELECT concat_ws(' ', p.oid, p.xmin, p.xmax, string_agg(concat_ws(' ', r.oid, r.xmin, r.xmax), ' ' ORDER BY r.oid),
                         CASE
                           WHEN NOT p.puballtables AND count(r.oid) = 0
                             AND to_regclass('pg_catalog.pg_publication_namespace') IS NOT NULL
                           THEN query_to_xml(format('
                             SELECT n.oid, n.xmin, n.xmax
                             FROM pg_catalog.pg_publication_namespace n
                             JOIN pg_catalog.pg_class c ON c.relnamespace = n.pnnspid
                             WHERE n.pnpubid = %1$s
                               AND (c.oid = %2$s OR c.oid IN (SELECT relid FROM pg_catalog.pg_partition_ancestors(%2$s)))
                             ORDER BY n.oid, c.oid', p.oid, own.oid), false, true, '')::text
                         END)
        FROM pg_publication p
        CROSS JOIN (SELECT coalesce(nullif(@relation::bigint, 0)::oid, 'troupe.outbox'::regclass) AS oid) AS own
        LEFT JOIN pg_publication_rel r
               ON r.prpubid = p.oid
              AND (r.prrelid = own.oid
                   OR r.prrelid IN (SELECT relid FROM pg_partition_ancestors(own.oid)))
        WHERE p.pubname = @publication
          AND p.pubinsert
          AND (@table::text IS NULL OR to_regclass(@table) = own.oid)
        GROUP BY p.oid, p.xmin, p.xmax, p.puballtables, own.oid
        HAVING coalesce(bool_and(to_jsonb(r) ->> 'prqual' IS NULL AND to_jsonb(r) ->> 'prattrs' IS NULL), true)
           AND CASE
                 WHEN p.puballtables OR count(r.oid) > 0 THEN true
                 ELSE EXISTS (SELECT
                              FROM pg_publication_tables t
                              WHERE t.pubname = @publication
                                AND to_regclass(format('%I.%I', t.schemaname, t.tablename)) = own.oid)
               END)                      AS publication
