INSERT INTO accounts (customer_id)
VALUES (@customer_id)
ON CONFLICT DO NOTHING
