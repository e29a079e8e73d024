SELECT reservation_id, quantity, released_at IS NOT NULL
FROM reservations
WHERE order_id = @order_id
