SELECT payment_id, amount_cents
FROM ledger
WHERE order_id = @order_id AND kind = 'refund'
