-- Nothing is inserted when the order or the idempotency key is there already.
INSERT INTO orders (order_id, customer_id, placed_at, title, quantity, amount_cents, state, status, version, idempotency_key)
VALUES (@order_id, @customer_id, @placed_at, @title, @quantity, @amount_cents, 'started', 'running', 0, @idempotency_key)
ON CONFLICT DO NOTHING
