-- The order has ended, also one that was parked. What the customer is told is of its row.
WITH ended AS (
  INSERT INTO order_ends AS e (order_id, status, reason, shipment_id, times)
  VALUES (@order_id, @status, @reason, @shipment_id, 1)
  ON CONFLICT (order_id) DO UPDATE
  SET status = excluded.status, reason = excluded.reason, shipment_id = excluded.shipment_id, at = excluded.at, times = e.times + 1
)
SELECT customer_id, amount_cents
FROM orders
WHERE order_id = @order_id
