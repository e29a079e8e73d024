-- Adding is not repeatable, so the balance follows the row of the ledger: where that cannot be inserted twice, nothing is added twice.
WITH entry AS (
  INSERT INTO ledger (idempotency_key, order_id, kind, customer_id, payment_id, amount_cents)
  VALUES (@idempotency_key, @order_id, 'charge', @customer_id, @payment_id, @amount_cents)
  RETURNING customer_id, amount_cents
)
UPDATE accounts
SET balance_cents = balance_cents + entry.amount_cents
FROM entry
WHERE accounts.customer_id = entry.customer_id
