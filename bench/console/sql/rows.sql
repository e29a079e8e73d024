-- Rows of the outbox that are to be published.
INSERT INTO troupe.outbox (topic, key, type, payload)
SELECT 'shop.payment.events', 'o-' || i, 'PaymentCharged', convert_to('{"payment_id": "p-' || i || '"}', 'UTF8')
FROM generate_series(1, @rows::integer) AS i
