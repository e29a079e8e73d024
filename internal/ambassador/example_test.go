package ambassador_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/ambassador"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// besideTheHotel runs an ambassador for a service that speaks only HTTP.
func besideTheHotel(ctx context.Context, pool *pgxpool.Pool, brokers []string, service, token string) error {
	p, err := participant.New(participant.Config{
		Pool: pool, Brokers: brokers, Hop: topics.MustHop("trip", "hotel"), Log: zerolog.New(os.Stderr).Level(zerolog.WarnLevel),
	})
	if err != nil {
		return err
	}
	a, err := ambassador.New(ambassador.Config{
		BaseURL: service, Header: http.Header{"Authorization": {"Bearer " + token}},
	})
	if err != nil {
		return err
	}
	a.Handle(p)
	return p.Run(ctx)
}

// hotel knows nothing of messages. It has rooms for two nights at most.
func hotel(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Println(r.Method, r.URL.Path, string(body), "for", r.Header.Get("X-Saga-Id"), "key", r.Header.Get("Idempotency-Key"))
	if string(body) != `{"nights":2}` {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"reason":"no room for so long"}`)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"reservation_id":"r-7"}`)
}

func Example() {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	service := httptest.NewServer(http.HandlerFunc(hotel))
	defer service.Close()
	pool, brokers, end, err := playground(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	served := make(chan error, 1)
	serving, leave := context.WithCancel(ctx)
	defer leave()
	go func() { served <- besideTheHotel(serving, pool, brokers, service.URL, "secret") }()

	// Two calls, as the relay of a saga's coordinator would publish them.
	client, err := kafka.NewClient(brokers, kgo.UnknownTopicRetries(-1), kgo.DefaultProduceTopic("trip.hotel.commands"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	for i, nights := range []int{2, 30} {
		trip := fmt.Sprintf("t-%d", i+1)
		r := kgo.KeySliceRecord([]byte(trip), fmt.Appendf(nil, `{"method":"POST","path":"/trips/%s/rooms","body":{"nights":%d}}`, trip, nights))
		for key, value := range map[string]string{
			"ce_id": "call-" + trip, "ce_type": "troupe.Call", "ce_idempotencykey": trip + "/hotel/1",
			"ce_sagaid": "trip/" + trip, "ce_sagastep": "hotel", "ce_sagaoperation": "forward",
		} {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: key, Value: []byte(value)})
		}
		if err := client.ProduceSync(ctx, r).FirstErr(); err != nil {
			fmt.Println(err)
			return
		}
		for _, answer := range waitForAnswers(ctx, pool, i+1)[i:] {
			fmt.Println(answer)
		}
	}
	leave()
	fmt.Println(<-served)
	// Output:
	// POST /trips/t-1/rooms {"nights":2} for trip/t-1 key t-1/hotel/1
	// troupe.CallDone {"status":201,"body":{"reservation_id":"r-7"}}
	// POST /trips/t-2/rooms {"nights":30} for trip/t-2 key t-2/hotel/1
	// troupe.CallRefused {"status":422,"body":{"reason":"no room for so long"},"reason":"no room for so long"}
	// <nil>
}

// playground is a database with Troupe's tables and a broker.
func playground(ctx context.Context) (pool *pgxpool.Pool, brokers []string, end func(), err error) {
	db, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{Settings: map[string]string{"fsync": "off"}})
	if err != nil {
		return nil, nil, nil, err
	}
	broker, err := devstack.StartKafka(ctx, devstack.KafkaConfig{Partitions: 1})
	if err != nil {
		return nil, nil, nil, errors.Join(err, db.Close())
	}
	stop := func() { _ = errors.Join(broker.Close(), db.Close()) }
	url, err := db.CreateDatabase(ctx, "ambassador", "")
	if err == nil {
		err = migrations.Up(ctx, url)
	}
	if err == nil {
		pool, err = pgxpool.New(ctx, url)
	}
	if err != nil {
		stop()
		return nil, nil, nil, err
	}
	return pool, broker.Addrs(), func() {
		pool.Close()
		stop()
	}, nil
}

func waitForAnswers(ctx context.Context, pool *pgxpool.Pool, n int) (answers []string) {
	for len(answers) < n && ctx.Err() == nil {
		rows, _ := pool.Query(ctx, "SELECT type || ' ' || convert_from(payload, 'UTF8') FROM troupe.outbox ORDER BY position")
		answers, _ = pgx.CollectRows(rows, pgx.RowTo[string])
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return answers
}

func ExampleMeaning() {
	for _, status := range []int{200, 202, 404, 409, 425, 429, 503, 307} {
		fmt.Println(status, ambassador.Meaning(status))
	}
	// Output:
	// 200 done
	// 202 done
	// 404 refused
	// 409 refused
	// 425 again
	// 429 again
	// 503 again
	// 307 wrong
}

// What a service in Go does with a signed request: before anything else, in constant time, and not with an old one.
func ExampleStandardWebhooks() {
	const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	sign, err := ambassador.StandardWebhooks(secret)
	if err != nil {
		fmt.Println(err)
		return
	}
	valid := func(h http.Header, body string) bool {
		seconds, err := strconv.ParseInt(h.Get("webhook-timestamp"), 10, 64)
		if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > 5*time.Minute {
			return false
		}
		key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		mac := hmac.New(sha256.New, key)
		_, _ = io.WriteString(mac, h.Get("webhook-id")+"."+h.Get("webhook-timestamp")+"."+body)
		want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
		return hmac.Equal([]byte(want), []byte(h.Get("webhook-signature"))) // == would tell how much of it was right
	}

	header := make(http.Header)
	sign(header, "cmd-1", time.Now(), []byte(`{"order":"o-1"}`))
	fmt.Println(valid(header, `{"order":"o-1"}`), valid(header, `{"order":"o-2"}`))
	sign(header, "cmd-1", time.Now().Add(-time.Hour), []byte(`{"order":"o-1"}`))
	fmt.Println(valid(header, `{"order":"o-1"}`))
	// Output:
	// true false
	// false
}
