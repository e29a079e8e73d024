package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/orders"
	"github.com/troupe-go/troupe/retry"
)

// atOnce bounds the orders that are posted concurrently.
const atOnce = 16

// A poster posts orders to the order service like a customer that never gives up: the same order with the same Idempotency-Key,
// until it gets an answer.
type poster struct {
	url    string
	pace   time.Duration // from one order to the next; 0: none
	client *http.Client
	// released receives a value for each order that may be posted, and is closed when all may be posted; nil: all may be posted
	// at once.
	released <-chan struct{}

	accepted atomic.Int64
	repeated atomic.Int64 // requests beyond the first for an order
}

func newPoster(url string, pace time.Duration) *poster {
	return &poster{
		url:  url,
		pace: pace,
		client: &http.Client{
			Timeout:   10 * time.Second,
			Transport: &http.Transport{MaxIdleConnsPerHost: atOnce},
		},
	}
}

// post posts all orders in sequence, atOnce of them concurrently. It returns early at the first order that is refused, and when
// ctx ends.
func (p *poster) post(ctx context.Context, all []orders.Order) error {
	defer p.client.CloseIdleConnections()
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	next := time.Now()
	for _, o := range all {
		if p.pace > 0 {
			next = next.Add(p.pace)
			select {
			case <-running.Done():
			case <-time.After(time.Until(next)):
			}
		}
		if p.released != nil {
			select {
			case <-running.Done():
			case <-p.released:
			}
		}
		if running.Err() != nil {
			break
		}
		group.Go(func() error { return p.postOrder(running, o) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

func (p *poster) postOrder(ctx context.Context, o orders.Order) error {
	body, err := json.Marshal(map[string]any{
		"order_id": o.ID, "customer_id": o.CustomerID, "placed_at": o.PlacedAt, "quantity": o.Quantity,
		"amount": demo.Decimal(o.AmountCents),
	})
	if err != nil {
		return err
	}
	policy := retry.Policy{Initial: 50 * time.Millisecond, Cap: time.Second}
	for failed := 0; ; {
		final, err := p.try(ctx, o.ID, body)
		switch {
		case err == nil:
			p.accepted.Add(1)
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case final:
			return fmt.Errorf("post order %s: %w", o.ID, err)
		}
		failed++
		p.repeated.Add(1)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(policy.Wait(failed)):
		}
	}
}

// try sends one request. An error is final if another request would get it too.
func (p *poster) try(ctx context.Context, key string, body []byte) (final bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/orders", bytes.NewReader(body))
	if err != nil {
		return true, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", key)
	answer, err := p.client.Do(request)
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
	switch {
	case answer.StatusCode == http.StatusAccepted:
		return false, nil
	case answer.StatusCode >= 500, answer.StatusCode == http.StatusTooManyRequests:
		return false, errors.New(answer.Status)
	}
	return true, fmt.Errorf("%s: %s", answer.Status, strings.TrimSpace(string(text)))
}
