-- The times of log entries, by the place of each in the arguments.
SELECT q.n, e.at
FROM unnest(@ids::text[], @versions::int[]) WITH ORDINALITY AS q (id, version, n)
JOIN troupe.saga_events AS e ON e.saga_id = q.id
                            AND e.version = q.version
