-- Keys that are held, each with three messages behind.
INSERT INTO troupe.held (consumer_group, topic_id, partition, "offset", topic, hold_key, key, headers, payload, message_time, attempts,
                         max_attempts, next_try, error_class, last_error, first_failed_at, last_failed_at)
SELECT 'shop.payment', '0191f6a8-0000-4000-8000-000000000001', i % @held % 12, i, 'shop.payment.commands', sha256(k), k, @headers,
       convert_to('{"order_id": "o-1"}', 'UTF8'), now(), CASE WHEN first THEN 2 ELSE 0 END, 8, CASE WHEN first THEN now() + interval '1 hour' END,
       CASE WHEN first THEN 'transient' END, CASE WHEN first THEN 'bank answered 503' END,
       CASE WHEN first THEN now() - interval '1 minute' END, CASE WHEN first THEN now() END
FROM generate_series(0, 4 * @held::integer - 1) AS i
CROSS JOIN LATERAL (SELECT i < @held AS first, convert_to('h-' || i % @held, 'UTF8') AS k) AS t
ORDER BY i
