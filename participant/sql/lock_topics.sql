SELECT pg_advisory_lock_shared(@class::integer, hashtext(@group::text || ' ' || topic))
FROM unnest(@topics::text[]) AS t (topic)
