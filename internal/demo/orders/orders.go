// Package orders reads a file of orders, and checks the whole file before any order is used.
//
// The file is CSV with a header: order_id, customer_id, placed_at, quantity and amount, in any order. Other columns are ignored.
// A byte order mark and CRLF are accepted. Errors have file, line and column; the first ten are reported.
//
//	column       valid values
//	order_id     1 to 200 bytes that can be printed; in no other line
//	customer_id  1 to 200 bytes that can be printed
//	placed_at    a date, 1997-01-31
//	quantity     a whole number from 1 to 2147483647
//	amount       decimal text, 29.33: not negative, at most two decimals
//
// A file may have 64 MiB and 100,000 orders.
package orders

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
)

// Limits of a file.
const (
	maxBytes  = 64 << 20
	maxOrders = 100_000
)

// An Order is one line of the file.
type Order struct {
	ID          string
	CustomerID  string
	PlacedAt    string // 1997-01-31
	Quantity    int32
	AmountCents int64
}

// sample contains the first 400 of the CDNOW sample's 6,919 purchases at an online music shop in 1997 and 1998, as it is used in
// the literature on customer bases (P. Fader, B. Hardie: brucehardie.com/datasets), with an order number added.
//
//go:embed sample.csv
var sample []byte

// Sample returns the orders that are part of the program.
func Sample() ([]Order, error) { return Read("sample.csv", bytes.NewReader(sample)) }

// ReadFile reads the file at path. Its errors begin with the path, followed by the line and the column if there is one.
func ReadFile(path string) ([]Order, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("orders: %w", err)
	}
	defer f.Close()
	switch info, err := f.Stat(); {
	case err != nil:
		return nil, fmt.Errorf("orders: %w", err)
	case info.IsDir():
		return nil, fmt.Errorf("%s: a folder: want a CSV file", path)
	case info.Size() > maxBytes:
		return nil, fmt.Errorf("%s: %d bytes: want at most %d", path, info.Size(), maxBytes)
	}
	return Read(path, f)
}
