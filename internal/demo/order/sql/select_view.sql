SELECT order_id, customer_id, placed_at, title, quantity, amount_cents, state, status, version,
       reason, payment_id, reservation_id, shipment_id, created_at, ended_at
FROM orders
WHERE order_id = @order_id
