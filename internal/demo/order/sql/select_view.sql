SELECT customer_id, placed_at, title, quantity, amount_cents, saga_id, state, status, version, reason,
       payment_id, reservation_id, shipment_id, created_at, ended_at
FROM order_flow
WHERE order_id = @order_id
