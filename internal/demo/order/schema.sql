-- One row per order: what was asked for, and how far its flow is.
CREATE TABLE IF NOT EXISTS orders (
  order_id        text        PRIMARY KEY CHECK (order_id <> ''),
  customer_id     text        NOT NULL,
  placed_at       date        NOT NULL,
  title           integer     NOT NULL CHECK (title BETWEEN 0 AND 499),
  quantity        integer     NOT NULL CHECK (quantity > 0),
  amount_cents    bigint      NOT NULL CHECK (amount_cents >= 0),
  state           text        NOT NULL,
  status          text        NOT NULL CHECK (status IN ('running', 'completed', 'compensated', 'parked')),
  version         integer     NOT NULL CHECK (version >= 0), -- compared and counted up by every change
  reason          text,                                     -- why it was cancelled or is parked
  payment_id      text,
  reservation_id  text,
  shipment_id     text,
  idempotency_key text        UNIQUE,                       -- of the request that placed it
  created_at      timestamptz NOT NULL DEFAULT now(),
  ended_at        timestamptz,                              -- a parked order has ended until somebody takes it up
  CHECK ((status = 'completed') = (state = 'completed')),
  CHECK ((status = 'compensated') = (state = 'cancelled')),
  CHECK ((status = 'running') = (ended_at IS NULL))
);
CREATE INDEX IF NOT EXISTS orders_open ON orders (status, order_id) WHERE status IN ('running', 'parked');

-- How each order came to where it is: one row per version.
CREATE TABLE IF NOT EXISTS order_history (
  order_id text        NOT NULL REFERENCES orders,
  version  integer     NOT NULL,
  state    text        NOT NULL,
  status   text        NOT NULL,
  event    text        NOT NULL, -- the type of the message that led here; of the request: placed
  at       timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (order_id, version)
);
