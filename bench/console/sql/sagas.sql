-- Sagas that started over thirty days. Of 1,000 are 970 completed, 18 compensated, 8 running, 2 compensating and 2 parked.
INSERT INTO troupe.sagas (id, saga, key, hop, consumer_group, definition, version, status, steps, reason, state, started_at, updated_at, ended_at)
SELECT 'order/o-' || i, 'order', 'o-' || i, 'shop.order', 'shop.order', @definition, (s.life -> 'version')::integer, status,
       CASE WHEN ended THEN '' ELSE (ARRAY['payment', 'inventory', 'shipping'])[1 + i % 3] END,
       CASE status WHEN 'parked' THEN 'inventory: the warehouse answers 503' WHEN 'compensated' THEN 'shipping: no carrier' END,
       s.life -> 'state', at, at + interval '4 seconds', CASE WHEN ended THEN at + interval '4 seconds' END
FROM generate_series(1, @sagas::integer) AS i
CROSS JOIN LATERAL (
  SELECT CASE WHEN i % 1000 < 2 THEN 'parked' WHEN i % 1000 < 4 THEN 'compensating' WHEN i % 1000 < 12 THEN 'running'
              WHEN i % 1000 < 30 THEN 'compensated' ELSE 'completed' END AS status,
         now() - interval '30 days' * (1 - i / @sagas::double precision) AS at,
         i % 1000 >= 12 AS ended,
         CASE WHEN i % 1000 < 2 THEN @parked::jsonb WHEN i % 1000 < 12 THEN @running ELSE @completed END AS life) AS s
