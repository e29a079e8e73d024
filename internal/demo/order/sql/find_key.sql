SELECT order_id FROM orders WHERE idempotency_key = @idempotency_key
