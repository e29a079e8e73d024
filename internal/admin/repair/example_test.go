package repair_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/migrations"
)

// Example groups failed messages by cause, edits and redrives one of them, and discards the others.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	pool, end, err := accident(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	desk, err := repair.New(repair.Config{Pool: pool}) // with a schemas.Codec if payloads are Avro
	if err != nil {
		fmt.Println(err)
		return
	}
	causes, _, err := desk.Causes(ctx, repair.Filter{Since: time.Now().Add(-24 * time.Hour)}, repair.Page{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range causes {
		fmt.Println(c.Count, c.Class, c.Fingerprint)
	}

	ann := admin.Actor{Name: "ann", Reason: "ticket 4711"}
	mend := repair.Filter{Key: repair.Key("o-1")}
	letters, _, err := desk.List(ctx, mend, repair.Page{})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = desk.Edit(ctx, letters[0].ID, []byte(`{"order_id": "o-1", "currency": "EUR"}`), ann)
	fmt.Println(err)
	redriven, err := desk.Redrive(ctx, mend, repair.RedriveConfig{By: ann, Rate: 20})
	fmt.Println(redriven.Redriven, redriven.Refused, err)
	discarded, err := desk.Discard(ctx, repair.Filter{Cause: causes[0].ID}, ann)
	fmt.Println(discarded, err)

	l, err := desk.Show(ctx, letters[0].ID)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(l.Status, string(l.Payload.JSON), string(l.Edit.JSON))
	for _, a := range l.History {
		fmt.Println(a.Action, a.Actor, a.Reason)
	}
	// Output:
	// 3 permanent order o-*: currency "*" is not known
	// <nil>
	// 1 0 <nil>
	// 2 <nil>
	// redriven {"order_id": "o-1", "currency": "EURO"} {"order_id": "o-1", "currency": "EUR"}
	// edit ann ticket 4711
	// redrive ann ticket 4711
}

// ExampleDesk_Release makes the next attempt of a held key due now, and gives the message up when that does not help.
func ExampleDesk_Release() {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	pool, end, err := accident(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	desk, err := repair.New(repair.Config{Pool: pool})
	if err != nil {
		fmt.Println(err)
		return
	}
	ann := admin.Actor{Name: "ann", Reason: "ticket 4712: the one behind it is urgent"}
	keys, _, err := desk.Held(ctx, repair.HeldFilter{Group: "order.payment"}, repair.Page{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, k := range keys {
		fmt.Println(k.Place, k.Key, k.Error, k.Behind)
	}
	n, err := desk.Retry(ctx, repair.HeldFilter{Key: repair.Key("o-9")}, ann)
	fmt.Println(n, err)
	released, err := desk.Release(ctx, keys[0].Place, repair.ReleaseConfig{By: ann})
	fmt.Println(released.Behind, err)
	_, err = desk.Release(ctx, keys[0].Place, repair.ReleaseConfig{By: ann})
	fmt.Println(errors.Is(err, repair.ErrGone))

	found, _, err := desk.Find(ctx, "charge-9")
	for _, s := range found {
		fmt.Println(s.Group, s.State, s.Status, s.Error)
	}
	fmt.Println(err)
	// Output:
	// order.payment.commands/0/9 o-9 bank answered 503 1
	// 1 <nil>
	// 1 <nil>
	// true
	// order.payment dead letter open bank answered 503
	// <nil>
}

// accident returns a database in which a participant of the hop order.payment has left three dead letters and a held key.
func accident(ctx context.Context) (pool *pgxpool.Pool, end func(), err error) {
	db, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{})
	if err != nil {
		return nil, nil, err
	}
	end = func() {
		if pool != nil {
			pool.Close()
		}
		_ = db.Close()
	}
	url, err := db.CreateDatabase(ctx, "payments", "")
	if err == nil {
		err = migrations.Up(ctx, url)
	}
	if err == nil {
		pool, err = pgxpool.New(ctx, url)
	}
	headers := func(id string) []byte {
		return envelope.MarshalHeaders(envelope.Message{ID: id, Type: "ChargePayment", ContentType: envelope.JSON}.Headers())
	}
	for n := 1; n <= 3 && err == nil; n++ {
		_, err = pool.Exec(ctx, `
			INSERT INTO troupe.dead_letters (consumer_group, handler, error_class, error, attempts, topic, topic_id, partition, "offset",
				key, headers, payload, message_id, message_type, correlation_id, first_failed_at, last_failed_at)
			VALUES ('order.payment', 'order.payment/ChargePayment', 'permanent', $1, 1, 'order.payment.commands', gen_random_uuid(), 0, $2,
				$3, $4, $5, $6, 'ChargePayment', $6, now(), clock_timestamp())`,
			fmt.Sprintf("order o-%d: currency %q is not known", n, "EURO"), n, fmt.Appendf(nil, "o-%d", n), headers(fmt.Sprintf("charge-%d", n)),
			fmt.Appendf(nil, `{"order_id": "o-%d", "currency": "EURO"}`, n), fmt.Sprintf("charge-%d", n))
	}
	if err == nil {
		_, err = pool.Exec(ctx, `
			INSERT INTO troupe.held (consumer_group, topic_id, partition, "offset", topic, hold_key, key, headers, message_time,
				attempts, max_attempts, next_try, error_class, last_error, first_failed_at, last_failed_at)
			VALUES ('order.payment', '0191f6a8-0000-4000-8000-000000000001', 0, 9, 'order.payment.commands', sha256('o-9'), 'o-9', $1, now(),
				1, 8, now() + interval '1 hour', 'transient', 'bank answered 503', now(), now()),
			       ('order.payment', '0191f6a8-0000-4000-8000-000000000001', 0, 10, 'order.payment.commands', sha256('o-9'), 'o-9', $2, now(),
				0, 8, NULL, NULL, NULL, NULL, NULL)`, headers("charge-9"), headers("charge-10"))
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	return pool, end, nil
}
