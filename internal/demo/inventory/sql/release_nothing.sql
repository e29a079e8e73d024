-- Where there was nothing to release, this keeps a reservation from being made afterwards.
INSERT INTO reservations (reservation_id, order_id, idempotency_key, quantity, released_at)
VALUES (@reservation_id, @order_id, @idempotency_key, 0, now())
ON CONFLICT (order_id) DO NOTHING
