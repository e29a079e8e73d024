-- An order that has ended stays so.
INSERT INTO order_ends (order_id, status, reason, times)
VALUES (@order_id, 'parked', @reason, 0)
ON CONFLICT DO NOTHING
