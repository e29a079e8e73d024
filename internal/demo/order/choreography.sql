-- The ends of orders of the style choreography: a row when an order is parked or has ended. Applied after
-- schema.sql.
CREATE TABLE IF NOT EXISTS order_ends (
  order_id    text        PRIMARY KEY,
  status      text        NOT NULL CHECK (status IN ('parked', 'completed', 'compensated')),
  reason      text,
  shipment_id text,
  at          timestamptz NOT NULL DEFAULT clock_timestamp(),
  times       integer     NOT NULL CHECK (times >= 0) -- that it ended: 0 while parked, else 1
);

-- The same columns as in schema.sql. This service does not know the progress of an order before its end. An order is also parked
-- if this service could not handle its end.
CREATE OR REPLACE VIEW order_flow AS
SELECT o.order_id, o.customer_id, o.placed_at, o.title, o.quantity, o.amount_cents, o.created_at,
       NULL::text AS saga_id, s.status, NULL::integer AS version,
       coalesce(e.reason, d.error) AS reason, CASE WHEN e.times > 0 THEN e.at END AS ended_at,
       CASE WHEN s.status = 'running' THEN 'placed' ELSE s.status END AS state,
       NULL::text AS payment_id, NULL::text AS reservation_id, e.shipment_id
FROM orders AS o
LEFT JOIN order_ends AS e USING (order_id)
LEFT JOIN (
  SELECT convert_from(key, 'UTF8') AS order_id, min(error) AS error FROM troupe.dead_letters WHERE status = 'open' GROUP BY 1
) AS d USING (order_id)
CROSS JOIN LATERAL (SELECT coalesce(e.status, CASE WHEN d.order_id IS NULL THEN 'running' ELSE 'parked' END) AS status) AS s;
