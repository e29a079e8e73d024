-- Returns the time of each log entry, with the index of the entry in the arguments, from 1. A time that its writer made up, and that Go or JSON
-- cannot have, is left out.
SELECT q.n, e.at
FROM unnest(@ids::text[], @versions::int[]) WITH ORDINALITY AS q (id, version, n)
JOIN troupe.saga_events AS e ON e.saga_id = q.id
                            AND e.version = q.version
WHERE e.at BETWEEN '0001-01-01 00:00Z' AND '9999-12-31 00:00Z'
