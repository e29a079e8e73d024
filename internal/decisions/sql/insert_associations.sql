INSERT INTO troupe.saga_associations (saga, variable, value, saga_id)
SELECT saga, variable, value, saga_id
FROM unnest(@sagas::text[], @variables::text[], @values::text[], @ids::text[]) AS a (saga, variable, value, saga_id)
ON CONFLICT DO NOTHING
