DELETE FROM troupe.saga_associations
WHERE saga_id = ANY (@ids::text[])
