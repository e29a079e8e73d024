-- Takes the shared locks on the topics. Returns the topics whose lock another session holds exclusively, which no participant does.
SELECT topic, hashtext(@group::text || ' ' || topic)
FROM unnest(@topics::text[]) AS t (topic)
WHERE NOT pg_try_advisory_lock_shared(@class::integer, hashtext(@group::text || ' ' || topic))
