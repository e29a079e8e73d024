-- Nothing is inserted when the order or the idempotency key is there already.
INSERT INTO orders (order_id, customer_id, placed_at, title, quantity, amount_cents, idempotency_key)
VALUES (@order_id, @customer_id, @placed_at, @title, @quantity, @amount_cents, @idempotency_key)
ON CONFLICT DO NOTHING
