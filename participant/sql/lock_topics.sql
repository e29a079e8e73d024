-- Takes the shared locks on the topics. Returns each topic whose lock another session holds exclusively; no participant holds it so.
SELECT topic, hashtext(@group::text || ' ' || topic)
FROM unnest(@topics::text[]) AS t (topic)
WHERE NOT pg_try_advisory_lock_shared(@class::integer, hashtext(@group::text || ' ' || topic))
