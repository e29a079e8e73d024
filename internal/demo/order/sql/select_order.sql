SELECT order_id, customer_id, placed_at, title, quantity, amount_cents
FROM orders
WHERE order_id = @order_id
