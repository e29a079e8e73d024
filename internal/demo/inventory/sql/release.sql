WITH released AS (
  UPDATE reservations
  SET released_at = now()
  WHERE order_id = @order_id AND released_at IS NULL
  RETURNING title, quantity
)
UPDATE stock
SET available = available + released.quantity
FROM released
WHERE stock.title = released.title
