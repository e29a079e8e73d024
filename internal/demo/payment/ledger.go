package payment

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/demo/messages"
	"github.com/troupe-go/troupe/participant"
)

var (
	//go:embed sql/open_account.sql
	openSQL string
	//go:embed sql/lock_account.sql
	lockSQL string
	//go:embed sql/charge.sql
	chargeSQL string
	//go:embed sql/refund.sql
	refundSQL string
	//go:embed sql/select_refund.sql
	selectRefundSQL string
)

// An account is the state of a customer's account before a charge.
type account struct {
	credit    int64  // cents that the customer may still owe
	paymentID string // of the order's charge, "" if there is none
	refunded  bool   // the order is refunded
}

// lockAccount opens the customer's account if there is none, and locks it until tx ends.
func lockAccount(ctx context.Context, tx pgx.Tx, c messages.ChargePayment) (account, error) {
	var a account
	args := pgx.NamedArgs{"customer_id": c.CustomerID, "order_id": c.OrderID}
	if err := participant.Queue(ctx, tx, openSQL, args); err != nil {
		return a, fmt.Errorf("open account: %w", err)
	}
	if err := tx.QueryRow(ctx, lockSQL, args).Scan(&a.credit, &a.paymentID, &a.refunded); err != nil {
		return a, fmt.Errorf("lock account: %w", err)
	}
	return a, nil
}

// charge adds the amount to the customer's balance.
func charge(ctx context.Context, tx pgx.Tx, idempotencyKey string, c messages.ChargePayment) (paymentID string, err error) {
	paymentID = "pay-" + c.OrderID
	err = participant.Queue(ctx, tx, chargeSQL, pgx.NamedArgs{
		"idempotency_key": idempotencyKey, "order_id": c.OrderID, "customer_id": c.CustomerID,
		"payment_id": paymentID, "amount_cents": c.AmountCents,
	})
	if err != nil {
		return "", fmt.Errorf("charge: %w", err)
	}
	return paymentID, nil
}

// refund refunds the charge of the order, once, and returns the refunded payment and amount.
func refund(ctx context.Context, tx pgx.Tx, idempotencyKey string, c messages.RefundPayment) (messages.PaymentRefunded, error) {
	refunded := messages.PaymentRefunded{OrderID: c.OrderID}
	args := pgx.NamedArgs{"idempotency_key": idempotencyKey, "order_id": c.OrderID, "payment_id": c.PaymentID}
	if err := participant.Queue(ctx, tx, refundSQL, args); err != nil {
		return refunded, fmt.Errorf("refund: %w", err)
	}
	if err := tx.QueryRow(ctx, selectRefundSQL, args).Scan(&refunded.PaymentID, &refunded.AmountCents); err != nil {
		return refunded, fmt.Errorf("read refund: %w", err)
	}
	return refunded, nil
}
