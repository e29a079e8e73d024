SELECT a.saga, a.variable, a.value, a.saga_id
FROM unnest(@sagas::text[], @variables::text[], @values::text[]) AS w (saga, variable, value)
JOIN troupe.saga_associations AS a USING (saga, variable, value)
ORDER BY a.saga_id
