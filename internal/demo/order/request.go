package order

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/troupe-go/troupe/internal/demo"
)

// maxRequest is the largest body of a request, in bytes.
const maxRequest = 16 << 10

// titles is the number of titles, numbered from 0.
const titles = 500

// A request is the body of POST /orders.
type request struct {
	OrderID    string `json:"order_id"`
	CustomerID string `json:"customer_id"`
	PlacedAt   string `json:"placed_at"` // 1997-01-31
	Quantity   int64  `json:"quantity"`
	Amount     string `json:"amount"` // decimal text, never a JSON number: many programs read those as floats
}

// readRequest returns the order of a request and its idempotency key, or a problem to answer with.
func readRequest(w http.ResponseWriter, r *http.Request) (Order, string, error) {
	key, err := idempotencyKey(r)
	if err != nil {
		return Order{}, "", err
	}
	if t := r.Header.Get("Content-Type"); t != "" && t != "application/json" && !strings.HasPrefix(t, "application/json;") {
		return Order{}, "", problem{Status: http.StatusUnsupportedMediaType, Detail: "want Content-Type: application/json"}
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	d.DisallowUnknownFields()
	var q request
	if err := d.Decode(&q); err != nil {
		return Order{}, "", unreadable(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Order{}, "", invalid("", "something follows the JSON object")
	}
	o, err := q.order()
	return o, key, err
}

// order checks every field.
func (q request) order() (Order, error) {
	o := Order{ID: q.OrderID, CustomerID: q.CustomerID}
	if reason := demo.CheckID(q.OrderID); reason != "" {
		return o, invalid("order_id", reason)
	}
	if reason := demo.CheckID(q.CustomerID); reason != "" {
		return o, invalid("customer_id", reason)
	}
	var err error
	if o.PlacedAt, err = time.Parse(time.DateOnly, q.PlacedAt); err != nil {
		return o, invalid("placed_at", fmt.Sprintf("%q is no date such as 1997-01-31", q.PlacedAt))
	}
	if q.Quantity < 1 || q.Quantity > math.MaxInt32 {
		return o, invalid("quantity", fmt.Sprintf("want a whole number from 1 to %d", math.MaxInt32))
	}
	o.Quantity = int(q.Quantity)
	if o.AmountCents, err = demo.Cents(q.Amount); err != nil {
		return o, invalid("amount", err.Error())
	}
	o.Title = title(q.OrderID)
	return o, nil
}

// title derives the order's title from its id, since the request does not contain it.
func title(orderID string) int {
	h := fnv.New64a()
	_, _ = io.WriteString(h, orderID) // never fails
	return int(h.Sum64() % titles)
}

// idempotencyKey returns the header's value, or "" if there is none.
func idempotencyKey(r *http.Request) (string, error) {
	const header = "Idempotency-Key"
	switch keys := r.Header.Values(header); {
	case len(keys) == 0:
		return "", nil
	case len(keys) > 1:
		return "", invalid(header, "sent more than once")
	default:
		if reason := demo.CheckID(keys[0]); reason != "" {
			return "", invalid(header, reason)
		}
		return keys[0], nil
	}
}

func unreadable(err error) error {
	var kind *json.UnmarshalTypeError
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return problem{Status: http.StatusRequestEntityTooLarge, Detail: fmt.Sprintf("the body is larger than %d bytes", maxRequest)}
	case errors.As(err, &kind):
		return invalid(kind.Field, fmt.Sprintf("JSON %s, want %s", kind.Value, wanted[kind.Type.Kind()]))
	}
	return invalid("", "the body is no JSON object: "+err.Error())
}

var wanted = map[reflect.Kind]string{reflect.String: "a string", reflect.Int64: "a whole number", reflect.Struct: "an object"}
