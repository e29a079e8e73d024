-- The initial and the remaining stock of each title.
CREATE TABLE IF NOT EXISTS stock (
  title     integer PRIMARY KEY,
  initial   integer NOT NULL CHECK (initial >= 0),
  available integer NOT NULL CHECK (available >= 0 AND available <= initial)
);
INSERT INTO stock (title, initial, available)
SELECT title, 10000000, 10000000 FROM generate_series(0, 499) AS title
ON CONFLICT DO NOTHING;

-- Reservations of stock. An order has at most one, however often its command is sent.
CREATE TABLE IF NOT EXISTS reservations (
  reservation_id  text        PRIMARY KEY,
  order_id        text        NOT NULL UNIQUE,
  idempotency_key text        NOT NULL UNIQUE CHECK (idempotency_key <> ''), -- of the command that wrote the row
  title           integer     REFERENCES stock, -- null: a release that came before any reservation, of nothing
  quantity        integer     NOT NULL CHECK (quantity >= 0),
  reserved_at     timestamptz NOT NULL DEFAULT now(),
  released_at     timestamptz,
  CHECK (title IS NOT NULL OR quantity = 0 AND released_at IS NOT NULL)
);
