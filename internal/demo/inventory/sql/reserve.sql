-- Nothing happens when the order has a reservation, released or not, or when too little is left.
WITH taken AS (
  UPDATE stock
  SET available = available - @quantity
  WHERE title = @title
    AND available >= @quantity
    AND NOT EXISTS (SELECT FROM reservations WHERE order_id = @order_id)
  RETURNING title
)
INSERT INTO reservations (reservation_id, order_id, idempotency_key, title, quantity)
SELECT @reservation_id, @order_id, @idempotency_key, title, @quantity FROM taken
