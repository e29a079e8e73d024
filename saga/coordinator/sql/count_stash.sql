SELECT saga, count(*)
FROM troupe.saga_stash
WHERE expires_at > clock_timestamp()
GROUP BY saga
