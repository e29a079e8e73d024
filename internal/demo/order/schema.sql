-- One row per order, with the request's data. The progress of its flow is in its saga.
CREATE TABLE IF NOT EXISTS orders (
  order_id        text        PRIMARY KEY CHECK (order_id <> ''),
  customer_id     text        NOT NULL,
  placed_at       date        NOT NULL,
  title           integer     NOT NULL CHECK (title BETWEEN 0 AND 499),
  quantity        integer     NOT NULL CHECK (quantity > 0),
  amount_cents    bigint      NOT NULL CHECK (amount_cents >= 0),
  idempotency_key text        UNIQUE, -- of the request that placed it
  created_at      timestamptz NOT NULL DEFAULT now()
);

-- Each order with its saga. While that runs, or is parked, state is the steps under way: payment_intent,
-- inventory_compensate_intent, shipping_exhausted; then it is the end.
CREATE OR REPLACE VIEW order_flow AS
SELECT o.order_id, o.customer_id, o.placed_at, o.title, o.quantity, o.amount_cents, o.created_at,
       s.id AS saga_id, s.status, s.version, s.reason, s.ended_at,
       CASE WHEN s.status IN ('running', 'compensating', 'parked') THEN (
         SELECT string_agg(concat_ws('_', step ->> 'name', step ->> 'phase'), ' ' ORDER BY number)
         FROM jsonb_array_elements(s.state -> 'steps') WITH ORDINALITY AS e (step, number)
         WHERE step ->> 'phase' IN ('intent', 'exhausted', 'doubt', 'compensate_intent', 'compensate_failed')
       ) ELSE s.status END AS state,
       s.state -> 'data' ->> 'payment_id' AS payment_id,
       s.state -> 'data' ->> 'reservation_id' AS reservation_id,
       s.state -> 'data' ->> 'shipment_id' AS shipment_id
FROM orders AS o
LEFT JOIN troupe.sagas AS s ON s.id = 'order/' || o.order_id;
