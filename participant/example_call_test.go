package participant_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/topics"
)

// A Receipt is the bank's answer.
type Receipt struct {
	Approved bool   `json:"approved"`
	Number   string `json:"number"`
}

// charge calls the bank. It has no transaction, and it may be called again for the same command, with the same key.
func charge(bank string) func(context.Context, participant.Command[ChargePayment]) (Receipt, error) {
	return func(ctx context.Context, c participant.Command[ChargePayment]) (r Receipt, err error) {
		body, err := json.Marshal(c.Body)
		if err != nil {
			return r, retry.Permanent(err)
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, bank, bytes.NewReader(body))
		if err != nil {
			return r, retry.Permanent(err)
		}
		request.Header.Set("Idempotency-Key", c.Message.IdempotencyKey)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return r, err // a failed attempt, which is retried
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
		switch {
		case err != nil:
			return r, err
		case response.StatusCode == http.StatusTooManyRequests:
			return r, retry.RateLimited(fmt.Errorf("the bank: %s", response.Status), 30*time.Second)
		case response.StatusCode >= 500:
			return r, fmt.Errorf("the bank: %s", response.Status)
		case response.StatusCode != http.StatusOK:
			return r, retry.Permanent(fmt.Errorf("the bank: %s", response.Status))
		}
		return r, json.Unmarshal(answer, &r)
	}
}

// book decides on the bank's answer, in the transaction that ends the command.
func book(ctx context.Context, tx pgx.Tx, c participant.Command[ChargePayment], r Receipt) (participant.Outcome, error) {
	if !r.Approved {
		return participant.Refuse(PaymentRefused{Reason: "the bank refused"}), nil
	}
	_, err := tx.Exec(ctx, "INSERT INTO payments (order_id, cents) VALUES ($1, $2)", c.Body.OrderID, c.Body.Cents)
	return participant.Succeed(PaymentCharged{OrderID: c.Body.OrderID}), err
}

// serveCharges is a service that charges at most 100 payments a minute over all its members, and 4 at once in each.
func serveCharges(ctx context.Context, pool *pgxpool.Pool, brokers []string, bank string) error {
	p, err := participant.New(participant.Config{
		Pool: pool, Brokers: brokers, Hop: topics.MustHop("order", "payment"), Log: zerolog.Nop(),
	})
	if err != nil {
		return err
	}
	participant.Call(p, charge(bank), book, participant.RateLimit(100, time.Minute), participant.ConcurrencyLimit("the bank", 4))
	return p.Run(ctx)
}

func ExampleCall() {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	pool, brokers, end, err := playground(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	// The bank refuses amounts above 100, and is busy at first.
	var once sync.Once
	bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		busy := false
		once.Do(func() { busy = true })
		var body ChargePayment
		if err := json.NewDecoder(r.Body).Decode(&body); busy || err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintf(w, `{"approved":%t,"number":"for %s"}`, body.Cents <= 100_00, r.Header.Get("Idempotency-Key"))
	}))
	defer bank.Close()

	served := make(chan error, 1)
	serving, leave := context.WithCancel(ctx)
	defer leave()
	go func() { served <- serveCharges(serving, pool, brokers, bank.URL) }()

	client, err := kafka.NewClient(brokers, kgo.UnknownTopicRetries(-1), kgo.DefaultProduceTopic("order.payment.commands"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	for i, cents := range []int{9_99, 250_00} {
		r := kgo.KeySliceRecord(fmt.Appendf(nil, "o-%d", i+1), fmt.Appendf(nil, `{"order_id":"o-%d","cents":%d}`, i+1, cents))
		r.Headers = []kgo.RecordHeader{
			{Key: "ce_id", Value: fmt.Appendf(nil, "charge-%d", i+1)}, {Key: "ce_type", Value: []byte("ChargePayment")},
			{Key: "ce_idempotencykey", Value: fmt.Appendf(nil, "o-%d/charge", i+1)},
		}
		if err := client.ProduceSync(ctx, r).FirstErr(); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println(waitForAnswers(ctx, pool, 2))
	leave()
	fmt.Println(<-served)
	// Output:
	// [PaymentCharged {"order_id":"o-1"} PaymentRefused {"reason":"the bank refused"}]
	// <nil>
}
