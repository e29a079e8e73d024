SELECT customer_id, placed_at, title, quantity, amount_cents, coalesce(saga_id, ''), state, status, coalesce(version, 0), reason,
       payment_id, reservation_id, shipment_id, created_at, ended_at
FROM order_flow
WHERE order_id = @order_id
