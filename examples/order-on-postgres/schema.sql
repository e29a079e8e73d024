CREATE TABLE IF NOT EXISTS orders (
  id      text    PRIMARY KEY,
  book    integer NOT NULL,
  copies  integer NOT NULL CHECK (copies > 0),
  cents   bigint  NOT NULL,
  address text    NOT NULL,
  status  text    NOT NULL DEFAULT 'taken' -- then shipped or cancelled
);
CREATE TABLE IF NOT EXISTS payments (
  order_id text   PRIMARY KEY,
  cents    bigint NOT NULL,
  refunded bigint NOT NULL DEFAULT 0 CHECK (refunded IN (0, cents))
);
CREATE TABLE IF NOT EXISTS stock (
  book integer PRIMARY KEY,
  free integer NOT NULL CHECK (free >= 0)
);
CREATE TABLE IF NOT EXISTS reservations (
  order_id text    PRIMARY KEY,
  book     integer NOT NULL REFERENCES stock,
  copies   integer NOT NULL
);
CREATE TABLE IF NOT EXISTS shipments (
  order_id text PRIMARY KEY,
  address  text NOT NULL
);
INSERT INTO stock (book, free) VALUES (1, 10), (2, 10) ON CONFLICT DO NOTHING;
