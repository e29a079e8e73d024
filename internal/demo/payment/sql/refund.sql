-- Refunds the charge of an order. Without a charge, a row with amount 0 prevents a later one.
WITH charged AS (
  SELECT customer_id, payment_id, amount_cents
  FROM ledger
  WHERE order_id = @order_id AND kind = 'charge'
), entry AS (
  INSERT INTO ledger (idempotency_key, order_id, kind, customer_id, payment_id, amount_cents)
  SELECT @idempotency_key, @order_id, 'refund', customer_id, coalesce(charged.payment_id, @payment_id), coalesce(amount_cents, 0)
  FROM (SELECT) AS always LEFT JOIN charged ON true
  ON CONFLICT (order_id, kind) DO NOTHING
  RETURNING customer_id, amount_cents
)
UPDATE accounts
SET balance_cents = balance_cents - entry.amount_cents
FROM entry
WHERE accounts.customer_id = entry.customer_id
