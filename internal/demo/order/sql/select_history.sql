SELECT version, state, status, event, at
FROM order_history
WHERE order_id = @order_id
ORDER BY version
