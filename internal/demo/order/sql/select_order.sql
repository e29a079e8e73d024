SELECT order_id, customer_id, placed_at, title, quantity, amount_cents, state, status, version,
       coalesce(reason, ''), coalesce(payment_id, ''), coalesce(reservation_id, ''), coalesce(shipment_id, '')
FROM orders
WHERE order_id = @order_id
