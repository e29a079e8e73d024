-- What each customer owes, and how much that may become.
CREATE TABLE IF NOT EXISTS accounts (
  customer_id   text   PRIMARY KEY,
  balance_cents bigint NOT NULL DEFAULT 0 CHECK (balance_cents >= 0),
  limit_cents   bigint NOT NULL DEFAULT 1000000000000 CHECK (limit_cents >= 0)
);

-- Every change of a balance. An order is charged once and refunded once, whatever is sent how often.
CREATE TABLE IF NOT EXISTS ledger (
  idempotency_key text        PRIMARY KEY CHECK (idempotency_key <> ''),
  order_id        text        NOT NULL,
  kind            text        NOT NULL CHECK (kind IN ('charge', 'refund')),
  customer_id     text        REFERENCES accounts, -- null: a refund that came before any charge, of nothing
  payment_id      text        NOT NULL,
  amount_cents    bigint      NOT NULL CHECK (amount_cents >= 0),
  at              timestamptz NOT NULL DEFAULT now(),
  UNIQUE (order_id, kind),
  CHECK (customer_id IS NOT NULL OR kind = 'refund' AND amount_cents = 0)
);
