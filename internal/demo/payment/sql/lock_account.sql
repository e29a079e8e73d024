SELECT limit_cents - balance_cents,
       coalesce((SELECT payment_id FROM ledger WHERE order_id = @order_id AND kind = 'charge'), ''),
       EXISTS (SELECT FROM ledger WHERE order_id = @order_id AND kind = 'refund')
FROM accounts
WHERE customer_id = @customer_id
FOR UPDATE
