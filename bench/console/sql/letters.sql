-- Open dead letters of forty causes.
INSERT INTO troupe.dead_letters (consumer_group, handler, error_class, error, attempts, topic, topic_id, partition, "offset", key,
                                 headers, payload, message_id, message_type, correlation_id, first_failed_at, last_failed_at)
SELECT 'shop.payment', 'shop.payment/ChargePayment', (ARRAY['permanent', 'timeout', 'transient', 'panic'])[1 + i % 4],
       'order o-' || i || ': bank ' || chr(65 + i % 10) || ' answered 4' || i % 97, 8, 'shop.payment.commands',
       '0191f6a8-0000-4000-8000-000000000001', i % 12, i, convert_to('o-' || i, 'UTF8'), @headers,
       convert_to('{"order_id": "o-' || i || '", "amount_cents": 1999, "note": "' || repeat('x', 200) || '"}', 'UTF8'),
       gen_random_uuid()::text, 'ChargePayment', gen_random_uuid()::text, at, at + interval '5 minutes'
FROM generate_series(1, @letters::integer) AS i
CROSS JOIN LATERAL (SELECT now() - make_interval(mins => i) AS at) AS t
