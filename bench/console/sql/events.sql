-- What was decided of the sagas whose pages are looked at.
INSERT INTO troupe.saga_events (saga_id, version, at, recorded_at, kind, event, moments)
SELECT s.id, (e.one -> 'version')::integer, s.started_at + e.number * interval '1 second', s.started_at + e.number * interval '1 second',
       e.one -> 'event' ->> 'kind', e.one -> 'event', e.one -> 'moments'
FROM troupe.sagas AS s
CROSS JOIN LATERAL jsonb_array_elements(CASE status WHEN 'parked' THEN @parked::jsonb WHEN 'running' THEN @running ELSE @completed END -> 'log')
  WITH ORDINALITY AS e (one, number)
WHERE s.status = 'parked' OR s.started_at > now() - interval '1 hour'
