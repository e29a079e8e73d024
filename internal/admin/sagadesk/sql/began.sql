-- Returns the time of each log entry, with the index of the entry in the arguments, from 1.
SELECT q.n, e.at
FROM unnest(@ids::text[], @versions::int[]) WITH ORDINALITY AS q (id, version, n)
JOIN troupe.saga_events AS e ON e.saga_id = q.id
                            AND e.version = q.version
