-- Those of sagas that have not ended.
INSERT INTO troupe.saga_associations (saga, variable, value, saga_id)
SELECT saga, v.name, CASE v.name WHEN '' THEN key ELSE 'p-' || key END, id
FROM troupe.sagas
CROSS JOIN (VALUES (''), ('payment_id')) AS v (name)
WHERE ended_at IS NULL
