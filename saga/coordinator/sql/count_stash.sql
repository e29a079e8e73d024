SELECT saga, count(*)
FROM troupe.saga_stash
WHERE saga_id = '' AND expires_at > clock_timestamp()
GROUP BY saga
