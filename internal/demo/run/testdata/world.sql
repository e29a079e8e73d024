-- Four orders, one of each end: completed, refused at once, compensated, parked with its charge and reservation. A line "-- in NAME"
-- names the database of the statements below it. world_test.go makes their sagas.
-- in order
DELETE FROM orders;
DELETE FROM troupe.sagas;
DELETE FROM troupe.saga_events;
DELETE FROM troupe.deadlines;
DELETE FROM troupe.outbox;
DELETE FROM troupe.outbox_failures;
DELETE FROM troupe.held;
DELETE FROM troupe.dead_letters;
INSERT INTO orders (order_id, customer_id, placed_at, title, quantity, amount_cents, created_at) VALUES
  ('o-done',    'c-1', '1997-01-01', 7, 2, 1000, '2000-01-01 00:00:00'),
  ('o-refused', 'c-1', '1997-01-02', 7, 1,  500, '2000-01-01 00:00:01'),
  ('o-undone',  'c-2', '1997-01-03', 8, 3,  250, '2000-01-01 00:00:02'),
  ('o-parked',  'c-2', '1997-01-04', 8, 4,  125, '2000-01-01 00:00:03');
-- in payment
DELETE FROM accounts;
DELETE FROM ledger;
DELETE FROM troupe.outbox;
DELETE FROM troupe.outbox_failures;
DELETE FROM troupe.held;
DELETE FROM troupe.dead_letters;
INSERT INTO accounts (customer_id, balance_cents) VALUES ('c-1', 1000), ('c-2', 125);
INSERT INTO ledger (idempotency_key, order_id, kind, customer_id, payment_id, amount_cents) VALUES
  ('o-done/charge',   'o-done',   'charge', 'c-1', 'pay-o-done',   1000),
  ('o-undone/charge', 'o-undone', 'charge', 'c-2', 'pay-o-undone',  250),
  ('o-undone/refund', 'o-undone', 'refund', 'c-2', 'pay-o-undone',  250),
  ('o-parked/charge', 'o-parked', 'charge', 'c-2', 'pay-o-parked',  125);
-- in inventory
DELETE FROM stock;
DELETE FROM reservations;
DELETE FROM troupe.outbox;
DELETE FROM troupe.outbox_failures;
DELETE FROM troupe.held;
DELETE FROM troupe.dead_letters;
INSERT INTO stock (title, initial, available) VALUES (7, 100, 98), (8, 100, 96), (9, 100, 100);
INSERT INTO reservations (reservation_id, order_id, idempotency_key, title, quantity, released_at) VALUES
  ('res-o-done',   'o-done',   'o-done/reserve',   7, 2, NULL),
  ('res-o-undone', 'o-undone', 'o-undone/reserve', 8, 3, now()),
  ('res-o-parked', 'o-parked', 'o-parked/reserve', 8, 4, NULL);
-- in shipping
DELETE FROM shipments;
DELETE FROM troupe.outbox;
DELETE FROM troupe.outbox_failures;
DELETE FROM troupe.held;
DELETE FROM troupe.dead_letters;
INSERT INTO shipments (shipment_id, order_id, idempotency_key, customer_id, title, quantity) VALUES
  ('ship-o-done', 'o-done', 'o-done/ship', 'c-1', 7, 2);
INSERT INTO troupe.dead_letters (consumer_group, handler, error_class, error, attempts, topic, topic_id, partition, "offset", key, headers,
  message_id, message_type, correlation_id, first_failed_at, last_failed_at) VALUES
  ('g', 'h', 'transient', 'no driver', 8, 't', gen_random_uuid(), 0, 0, 'o-parked', '', 'm', 'troupe.order.ShipOrder', 'c', now(), now());
