package order

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const placeable = `{"order_id": "o-1", "customer_id": "c-1", "placed_at": "1997-01-31", "quantity": 2, "amount": "29.33"}`

type answer struct {
	status   int
	location string
	kind     string
	body     string
}

func (s *onStage) call(t *testing.T, method, path, body string, headers ...string) answer {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.api().ServeHTTP(w, r)
	got, err := io.ReadAll(w.Body)
	require.NoError(t, err)
	return answer{w.Code, w.Header().Get("Location"), w.Header().Get("Content-Type"), string(got)}
}

func (s *onStage) count(t *testing.T, table string) (n int) {
	t.Helper()
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
	return n
}

func TestPlacingAnOrderReturnsBeforeAnyStepRan(t *testing.T) {
	t.Parallel()
	s := newService(t)
	got := s.call(t, "POST", "/orders", placeable)
	require.Equal(t, answer{202, "/orders/o-1", "application/json", `{"order_id":"o-1"}` + "\n"}, got)
	require.Equal(t, "payment_intent", s.mustRead(t, "o-1").State)
	require.Equal(t, []sent{
		{"order.payment.commands", "o-1", "troupe.order.ChargePayment", "", "order/o-1/payment/forward/0", "payment", "forward"},
	}, readOutbox(t, s.pool), "the order and its first command are one transaction")
}

func TestAnOrderIsPlacedOnce(t *testing.T) {
	t.Parallel()
	other := strings.Replace(placeable, `"29.33"`, `"29.34"`, 1)
	otherID := strings.Replace(placeable, `"o-1"`, `"o-2"`, 1)
	for name, again := range map[string]struct {
		key, body string
		status    int
		field     string
	}{
		"the same key and body":                  {"k-1", placeable, 202, ""},
		"the same key, the body written in part": {"k-1", strings.Replace(placeable, `"29.33"`, `"029.33"`, 1), 202, ""},
		"the same key, another amount":           {"k-1", other, 422, "Idempotency-Key"},
		"the same key, another order":            {"k-1", otherID, 422, "Idempotency-Key"},
		"another key, the same order":            {"k-2", placeable, 202, ""},
		"no key, the same order":                 {"", placeable, 202, ""},
		"another key, another amount":            {"k-2", other, 409, "order_id"},
		"no key, another amount":                 {"", other, 409, "order_id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			first := s.call(t, "POST", "/orders", placeable, "Idempotency-Key", "k-1")
			require.Equal(t, 202, first.status)
			var headers []string
			if again.key != "" {
				headers = []string{"Idempotency-Key", again.key}
			}
			second := s.call(t, "POST", "/orders", again.body, headers...)
			require.Equal(t, again.status, second.status, second.body)
			if again.status == 202 {
				require.Equal(t, first, second)
			} else {
				var p problem
				require.NoError(t, json.Unmarshal([]byte(second.body), &p))
				require.Equal(t, again.field, p.Field)
			}
			require.Equal(t, 1, s.count(t, "orders"))
			require.Equal(t, 1, s.count(t, "troupe.outbox"))
			require.Equal(t, 1, s.count(t, "troupe.sagas"))
		})
	}
}

func TestTheSameOrderPlacedByManyAtOnceIsPlacedOnce(t *testing.T) {
	t.Parallel()
	s := newService(t)
	answers := make([]answer, 16)
	var wait sync.WaitGroup
	for i := range answers {
		wait.Go(func() { answers[i] = s.call(t, "POST", "/orders", placeable, "Idempotency-Key", fmt.Sprint(i%2)) })
	}
	wait.Wait()
	for _, got := range answers {
		require.Equal(t, answers[0], got)
	}
	require.Equal(t, 202, answers[0].status)
	require.Equal(t, 1, s.count(t, "orders"))
	require.Equal(t, 1, s.count(t, "troupe.outbox"))
}

func TestAnInvalidOrderIsRefusedWithItsField(t *testing.T) {
	t.Parallel()
	s := newService(t)
	with := func(field, value string) string {
		var fields map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(placeable), &fields))
		delete(fields, field)
		if value != "" {
			fields[field] = json.RawMessage(value)
		}
		body, err := json.Marshal(fields)
		require.NoError(t, err)
		return string(body)
	}
	for name, bad := range map[string]struct {
		body, field, reason string
	}{
		"no order id":            {with("order_id", ""), "order_id", "missing"},
		"a number as order id":   {with("order_id", `1`), "order_id", "JSON number, want a string"},
		"NUL in the order id":    {with("order_id", `"a\u0000b"`), "order_id", "cannot be printed"},
		"half a character":       {with("order_id", `"\ud800"`), "order_id", "cannot be printed"},
		"dots as order id":       {with("order_id", `".."`), "order_id", "path"},
		"a huge order id":        {with("order_id", `"`+strings.Repeat("x", 201)+`"`), "order_id", "longer than 200"},
		"no customer":            {with("customer_id", ""), "customer_id", "missing"},
		"no date":                {with("placed_at", ""), "placed_at", "is no date"},
		"a day there is not":     {with("placed_at", `"1997-02-30"`), "placed_at", "is no date"},
		"no quantity":            {with("quantity", ""), "quantity", "whole number from 1"},
		"quantity 0":             {with("quantity", "0"), "quantity", "whole number from 1"},
		"a negative quantity":    {with("quantity", "-1"), "quantity", "whole number from 1"},
		"a broken quantity":      {with("quantity", "1.5"), "quantity", "want a whole number"},
		"a quantity as text":     {with("quantity", `"2"`), "quantity", "JSON string"},
		"a quantity too large":   {with("quantity", "2147483648"), "quantity", "whole number from 1"},
		"a quantity overflowing": {with("quantity", "99999999999999999999"), "quantity", "want a whole number"},
		"no amount":              {with("amount", ""), "amount", "no decimal number"},
		"an amount as a number":  {with("amount", "29.33"), "amount", "JSON number, want a string"},
		"a negative amount":      {with("amount", `"-0.01"`), "amount", "negative"},
		"three decimals":         {with("amount", `"29.333"`), "amount", "more than two decimals"},
		"an unknown field":       {with("amuont", `"1"`), "", `unknown field "amuont"`},
		"two objects":            {placeable + placeable, "", "follows"},
		"no JSON":                {"order_id=o-1", "", "no JSON object"},
		"half a JSON":            {placeable[:20], "", "no JSON object"},
		"a list":                 {"[]", "", "want an object"},
		"nothing":                {"", "", "no JSON object"},
	} {
		got := s.call(t, "POST", "/orders", bad.body)
		require.Equal(t, 400, got.status, name)
		require.Equal(t, "application/problem+json", got.kind)
		var p problem
		require.NoError(t, json.Unmarshal([]byte(got.body), &p))
		require.Equal(t, bad.field, p.Field, name)
		require.Contains(t, p.Detail, bad.reason, name)
	}
	require.Zero(t, s.count(t, "orders"))
}

func TestRequestsHaveLimits(t *testing.T) {
	t.Parallel()
	s := newService(t)
	large := `{"order_id": "` + strings.Repeat("x", maxRequest) + `"}`
	require.Equal(t, 413, s.call(t, "POST", "/orders", large).status)
	require.Equal(t, 415, s.call(t, "POST", "/orders", placeable, "Content-Type", "text/csv").status)
	require.Equal(t, 202, s.call(t, "POST", "/orders", placeable, "Content-Type", "application/json; charset=utf-8").status)
	require.Equal(t, 400, s.call(t, "POST", "/orders", placeable, "Idempotency-Key", "").status)
	require.Equal(t, 400, s.call(t, "POST", "/orders", placeable, "Idempotency-Key", "a", "Idempotency-Key", "b").status)
	require.Equal(t, 400, s.call(t, "POST", "/orders", placeable, "Idempotency-Key", "\xff").status)
	require.Equal(t, http.StatusMethodNotAllowed, s.call(t, "PUT", "/orders", placeable).status)
	require.Equal(t, 404, s.call(t, "GET", "/orders/o-404", "").status)
}

func TestAFreeOrderIsLegal(t *testing.T) {
	t.Parallel()
	s := newService(t)
	require.Equal(t, 202, s.call(t, "POST", "/orders", strings.Replace(placeable, "29.33", "0.00", 1)).status)
	require.Equal(t, "0.00", s.mustRead(t, "o-1").Amount)
}

func TestTheFlowSoFarIsShown(t *testing.T) {
	t.Parallel()
	s := running(t)
	id := "Ünder/way no. 1"
	body := strings.Replace(placeable, `"o-1"`, fmt.Sprintf("%q", id), 1)
	placed := s.call(t, "POST", "/orders", body)
	require.Equal(t, 202, placed.status)
	s.take(t, id, charged)

	got := s.call(t, "GET", placed.location, "")
	require.Equal(t, 200, got.status, got.body)
	var v view
	require.NoError(t, json.Unmarshal([]byte(got.body), &v))
	require.Equal(t, id, v.OrderID)
	require.Equal(t, "29.33", v.Amount)
	require.Equal(t, "1997-01-31", v.PlacedAt)
	require.Equal(t, "inventory_intent", v.State)
	require.Equal(t, "running", v.Status)
	require.Equal(t, "pay-1", *v.PaymentID)
	require.Nil(t, v.ReservationID)
	require.Len(t, v.History, 4)
	require.Equal(t, "SagaStarted", v.History[0].What)
}
