// Package services holds the messages and tables of one payment service, which the packages below write with different libraries:
// sqlc for pgx, sqlc for database/sql, GORM, bun and ent. The same tests run against each.
package services

import _ "embed" // the tables

// Schema creates the service's tables. sqlc reads the same file.
//
//go:embed schema.sql
var Schema string

// ChargePayment is the command.
type ChargePayment struct {
	OrderID  string `json:"order_id"`
	Customer string `json:"customer"`
	Cents    int64  `json:"cents"`
}

// PaymentCharged is its answer.
type PaymentCharged struct {
	OrderID string `json:"order_id"`
}

// PaymentRefused is its answer if the customer's limit does not suffice.
type PaymentRefused struct {
	Reason string `json:"reason"`
}

// SendReceipt is the command that a charged payment sends to the hop mail.
type SendReceipt struct {
	OrderID string `json:"order_id"`
	Cents   int64  `json:"cents"`
}

// OverLimit is the refusal.
func OverLimit() PaymentRefused { return PaymentRefused{Reason: "over the customer's limit"} }
