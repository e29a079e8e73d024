-- Counts the unexpired events for the next saga, and the events that are kept for a saga, by index.
SELECT saga, false AS kept, count(*)
FROM troupe.saga_stash
WHERE expires_at > clock_timestamp()
GROUP BY saga
UNION ALL
SELECT saga, true, count(*)
FROM troupe.saga_stash
WHERE saga_id <> ''
GROUP BY saga
