-- The order as it was decided on, if it still is as it was read, and a row of history for each state it went through.
WITH updated AS (
  UPDATE orders
  SET state = @state,
      status = @status,
      version = version + cardinality(@states::text[]),
      reason = nullif(@reason, ''),
      payment_id = nullif(@payment_id, ''),
      reservation_id = nullif(@reservation_id, ''),
      shipment_id = nullif(@shipment_id, ''),
      ended_at = CASE WHEN @status = 'running' THEN NULL ELSE now() END
  WHERE order_id = @order_id AND version = @version
  RETURNING order_id
)
INSERT INTO order_history (order_id, version, state, status, event)
SELECT order_id, @version + passed.n, passed.state, passed.status, @event
FROM updated, unnest(@states::text[], @statuses::text[]) WITH ORDINALITY AS passed (state, status, n)
