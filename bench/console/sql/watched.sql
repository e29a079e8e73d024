-- A flow, its four topics, and the types of seven messages.
WITH flow AS (
  INSERT INTO troupe.watch_names (name) VALUES ('shop'), ('shop.order.events'), ('shop.payment.events'), ('shop.inventory.events'), ('shop.shipping.events'),
    ('Placed'), ('Paid'), ('Reserved'), ('Shipped'), ('Invoiced'), ('Insured'), ('Completed')
  RETURNING id, name)
INSERT INTO troupe.watch_flows (flow, declared, answer, seen_at)
SELECT id, @declared::jsonb, '1 minute', now()
FROM flow
WHERE name = 'shop'
