CREATE TABLE limits (
  customer   text PRIMARY KEY,
  cents_left bigint NOT NULL CHECK (cents_left >= 0)
);

CREATE TABLE payments (
  order_id   text PRIMARY KEY,
  customer   text NOT NULL REFERENCES limits,
  cents      bigint NOT NULL CHECK (cents > 0),
  charged_at timestamptz NOT NULL DEFAULT now()
);
