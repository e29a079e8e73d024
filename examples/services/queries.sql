-- name: LockLimit :one
SELECT cents_left FROM limits WHERE customer = $1 FOR UPDATE;

-- name: InsertPayment :execrows
INSERT INTO payments (order_id, customer, cents) VALUES ($1, $2, $3) ON CONFLICT (order_id) DO NOTHING;

-- name: Spend :exec
UPDATE limits SET cents_left = cents_left - sqlc.arg(cents) WHERE customer = sqlc.arg(customer);
