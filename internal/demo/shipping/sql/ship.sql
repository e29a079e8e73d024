INSERT INTO shipments (shipment_id, order_id, idempotency_key, customer_id, title, quantity)
VALUES (@shipment_id, @order_id, @idempotency_key, @customer_id, @title, @quantity)
ON CONFLICT (order_id) DO NOTHING
