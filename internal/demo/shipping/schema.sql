-- Shipments. An order is shipped once, however often its command is sent.
CREATE TABLE IF NOT EXISTS shipments (
  shipment_id     text        PRIMARY KEY,
  order_id        text        NOT NULL UNIQUE,
  idempotency_key text        NOT NULL UNIQUE CHECK (idempotency_key <> ''),
  customer_id     text        NOT NULL,
  title           integer     NOT NULL,
  quantity        integer     NOT NULL CHECK (quantity > 0),
  shipped_at      timestamptz NOT NULL DEFAULT now()
);

-- Customers to whom nothing can be delivered.
CREATE TABLE IF NOT EXISTS undeliverable (
  customer_id text PRIMARY KEY,
  reason      text NOT NULL
);
